"""What every section of a config is made from; and those on what is played, on which tasks, and on
which machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from sparring.run import rank

if TYPE_CHECKING:
    from sparring.run.config import Config


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)

    def sources(self) -> list[str]:
        """Every data source that this section and those inside it name: keys `source`, `data`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        own = [v for k, v in values.items() if k in ("source", "data") and isinstance(v, str)]
        return own + [s for v in values.values() if isinstance(v, Section) for s in v.sources()]

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """`iterations: yes` is a slip, and not 1."""
        parsed = validate(value)
        if isinstance(value, bool) and not isinstance(parsed, bool):
            raise ValueError("a number is wanted, not true or false")
        return parsed


class CollectConfig(Section):
    """How much is played before each update."""

    episodes: int = Field(64, ge=0)  # 0: nothing is played, where the teacher has games on record
    group: int = Field(1, ge=1)  # how often each task is played, to be compared within itself
    concurrency: int = Field(512, ge=1)
    # Updates that games may be behind: played by workers while others are learned from. Not said:
    # 1 where there are two GPUs, else 0.
    ahead: int = Field(0, ge=0)
    # Groups whose rewards do not differ are not learned from, and others are played in their place,
    # in at most so many batches (DAPO's dynamic sampling).
    filter_groups: bool = False
    max_num_gen_batches: int = Field(10, ge=1)

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if self.filter_groups and self.group < 2:
            raise ValueError("filter_groups compares the games of a group: set group to 2 or more")
        return self


def why_not_ahead(config: Config) -> str:
    """Why games cannot be played while others are learned from; nothing where they can."""
    if config.teach.kind != "credit" or config.learn.objective != "policy":
        return "only sampled turns, learned by credit, can be corrected for being stale"
    if config.curriculum:
        return "which level of a curriculum comes next is known only when the last is learned"
    if config.learn.restart:
        return "with learn.restart no iteration goes on from the last"
    if config.learn.shard or rank.size() > 1:
        return "it is for one process that learns; replicas (ray.replicas) may speak"
    if config.bases:
        return "bases of their own are not played ahead"
    if config.collect.filter_groups:
        return "collect.filter_groups plays on until enough groups differ"
    return ""


class GateConfig(Section):
    """Tasks pooled by mean reward; what is too easy or too hard is met less often."""

    enabled: bool = False
    easy_threshold: float = 0.9
    hard_threshold: float = 0.1
    easy_fraction: float = Field(0.1, ge=0, le=1)  # share of an easy task's turns that it keeps
    hard_fraction: float = Field(0.1, ge=0, le=1)
    decay: float = Field(0.9, ge=0, lt=1)  # of the mean, per game
    least: int = Field(4, ge=1)  # games on a task before it is pooled

    @model_validator(mode="after")
    def _thresholds(self) -> Self:
        if self.hard_threshold >= self.easy_threshold:
            raise ValueError(
                f"hard_threshold ({self.hard_threshold}) must be below easy_threshold "
                f"({self.easy_threshold})"
            )
        return self


class TasksConfig(Section):
    """Where tasks come from, for games that do not make their own."""

    source: str | None = None  # a JSONL file, a saved dataset folder, a hub name, or `shipped`
    split: str = "train"
    limit: int | None = Field(None, ge=1)
    holdout: float = Field(0.0, ge=0, lt=1)  # share that is never learned from, only measured on
    gate: GateConfig = Field(default_factory=GateConfig)


class RayConfig(Section):
    """Engines, and judges, on many machines through Ray."""

    replicas: int = Field(0, ge=0)  # copies of the engine; 0: the one in the learner's process
    address: str = ""  # of a cluster: `auto`, or HOST:PORT; empty: this machine alone
    cpus: float = Field(1.0, gt=0)  # of each replica
    gpus: float | None = Field(None, ge=0)  # of each; None: one, where the device is a GPU
    judges: bool = False  # whether judges rule in Ray's tasks too
    patience_s: float = Field(300.0, gt=0)  # for replicas to come up
