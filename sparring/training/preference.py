"""DPO on the one learner: texts become pairs, the reference's logprobs of them are computed once.

The reference is the model with its adapter switched off, so there is no second copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.types import BASE, MAIN, Lesson, Pair, Sample, members
from sparring.learn.demonstrations import Demonstration, to_sample
from sparring.models.chat import Chat
from sparring.run.config import Config
from sparring.run.rundir import RunDir, digest
from sparring.training.finetune import Progress, fit_run

if TYPE_CHECKING:
    from sparring.learn.learner import Learner

CACHE = "reference.safetensors"


@dataclass(frozen=True, slots=True)
class Preference:
    """What is asked, what is preferred to what, and whether either was cut off before its end."""

    prompt: str
    chosen: str
    rejected: str
    cut_off: tuple[bool, bool] = (False, False)

    def as_json(self) -> list[Any]:
        return [self.prompt, self.chosen, self.rejected, list(self.cut_off)]


def to_pair(chat: Chat, preference: Preference, policy: str = MAIN) -> Pair:
    """Both replies to the same prompt; one that was cut off has no end to learn from."""
    chosen, rejected = (
        to_sample(chat, Demonstration.of("", preference.prompt, text), policy, ended=not cut)
        for text, cut in zip(
            (preference.chosen, preference.rejected), preference.cut_off, strict=True
        )
    )
    return Pair(chosen, rejected)


def add_reference(learner: Learner, pairs: Sequence[Pair], reference: str = BASE) -> None:
    """The reference's logprob of every token to learn from, written into the samples."""
    from sparring.learn.scoring import score_logprobs

    samples = [sample for pair in pairs for sample in members(pair)]
    for sample, logprobs in score_logprobs(learner, reference, samples):
        sample.logprobs = logprobs


def fit_preferences(
    config: Config,
    path: Path,
    preferences: Sequence[Preference],
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> RunDir:
    """DPO as a resumable run, on the config's model as its own reference."""
    if config.learn.objective != "preference":
        raise ConfigError("pairs are learned from with learn.objective=preference")
    if not preferences:
        raise ConfigError("there is no valid pair to learn from")
    facts = {"kind": "preferences", "count": len(preferences)}
    facts["sha256"] = digest([p.as_json() for p in preferences])

    def make(chat: Chat) -> Sequence[Lesson]:
        return [to_pair(chat, p) for p in preferences]

    def ready(learner: Learner, run: RunDir, lessons: Sequence[Lesson]) -> None:
        pairs = [lesson for lesson in lessons if isinstance(lesson, Pair)]
        cached(run.path / CACHE, pairs, lambda: add_reference(learner, pairs))

    return fit_run(config, path, make, facts, ready=ready, resume=resume, progress=progress)


def cached(path: Path, pairs: Sequence[Pair], compute: Callable[[], None]) -> None:
    """Reference logprobs from the file, or computed and put there."""
    import torch
    from safetensors.torch import load_file, save_file

    from sparring.learn.scoring import at_learned

    samples: list[Sample] = [sample for pair in pairs for sample in members(pair)]
    if path.is_file():
        kept = load_file(path)["logprobs"].tolist()
        if len(kept) == sum(sum(s.mask) for s in samples):
            left = iter(kept)
            for sample in samples:
                sample.logprobs = at_learned(sample, left)
            return
    compute()
    flat = [x for s in samples for x, m in zip(s.logprobs, s.mask, strict=True) if m]
    unfinished = path.with_name(f".{path.name}.unfinished")
    save_file({"logprobs": torch.tensor(flat)}, unfinished)
    unfinished.replace(path)
