"""The config section of coherent mathematics."""

from __future__ import annotations

from pydantic import Field

from sparring.run.sections import Section


class SftConfig(Section):
    """Supervised fitting, before anything is sampled."""

    epochs: int = Field(3, ge=1)
    lr: float = Field(2e-4, gt=0)
    batch: int = Field(32, ge=1)  # solutions per optimizer step, however many fit the device
    warmup: int = Field(10, ge=0)  # optimizer steps
    questions: int | None = Field(None, ge=1)  # the first so many
    calculator: bool = False  # whether GSM8K's <<48/2=24>> stay in the solutions


class RolloutsConfig(Section):
    questions: int | None = Field(500, ge=1)  # the first so many
    chunk: int = Field(128, ge=1)  # questions that are asked at once, and lost at most by a kill
    held_out: int = Field(0, ge=0)  # of the evaluation's, asked before and after DPO: does it hold?


class PreferencesConfig(Section):
    correctness: int = Field(4, ge=0)  # pairs of right over wrong, at most, per question
    coherence: int = Field(2, ge=0)  # pairs of coherent over less so, at most, per question
    margin: float = Field(0.02, ge=0)  # of s_wm, that a pair of the second kind must differ by


class GsmConfig(Section):
    """The questions that are never trained on."""

    data: str = "shipped:word_problems"  # as tasks.source
    problems: int | None = Field(None, ge=1)
    max_tokens: int = Field(256, ge=1)
    samples: int = Field(1, ge=1)  # more than one: the answer that most of them give
    temperature: float | None = Field(None, ge=0)  # None: greedy, or 0.7 for several samples


class MathConfig(Section):
    """The phases of coherent mathematics; DPO's own settings are under `learn` and `iterations`."""

    sft: SftConfig = Field(default_factory=SftConfig)
    rollouts: RolloutsConfig = Field(default_factory=RolloutsConfig)
    preferences: PreferencesConfig = Field(default_factory=PreferencesConfig)
    gsm8k: GsmConfig = Field(default_factory=GsmConfig)
