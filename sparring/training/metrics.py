"""What one iteration's episodes come to, as flat numbers."""

from __future__ import annotations

import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sparring.core.game import Game
from sparring.core.types import Episode, Lesson, members
from sparring.credit.credit import earned
from sparring.run.schedule import Step


def summarize(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Counts, rates, mean rewards and lengths. Void games are counted and otherwise left out."""
    fair = [e for e in episodes if e.void is None]
    turns = [turn for e in fair for turn in e.turns]
    learned = [turn for turn in turns if turn.trainable]
    rewards: dict[str, list[float]] = defaultdict(list)
    for episode in fair:
        for seat in episode.rewards:
            rewards[f"reward/{episode.game}/{seat}"].append(earned(episode, seat))
    learned_rewards = [
        earned(episode, seat)
        for episode in fair
        for seat in {turn.seat: 0 for turn in episode.turns if turn.trainable}
    ]
    kinds = Counter(v.kind or v.status for e in episodes for v in e.verdicts)
    predicted = [e.facts["predicted"] for e in fair if "predicted" in e.facts]
    n = max(1, len(fair))
    return {
        "episodes": len(episodes),
        "turns": len(turns),
        "tokens": sum(len(turn.token_ids) for turn in turns),
        "rate/void": (len(episodes) - len(fair)) / max(1, len(episodes)),
        "rate/invalid": sum("invalid" in e.facts for e in fair) / n,
        "length/turns": len(turns) / n,
        "length/tokens": fmean(len(t.token_ids) for t in learned) if learned else 0.0,
        **({"reward/avg_batch_reward": fmean(learned_rewards)} if learned_rewards else {}),
        **({"reward/successful_predictions_count": sum(map(bool, predicted))} if predicted else {}),
        **{key: fmean(values) for key, values in sorted(rewards.items())},
        **{f"verdicts/{kind}": count for kind, count in sorted(kinds.items())},
    }


def summaries(games: Mapping[str, Game], episodes: Sequence[Episode]) -> dict[str, float]:
    """What each game has to say of its own episodes."""
    metrics: dict[str, float] = {}
    for name, game in games.items():
        metrics |= game.summary([e for e in episodes if e.game == name and e.void is None])
    return metrics


def schedule_position(step: Step | None) -> dict[str, Any]:
    """Where in its schedule an iteration is."""
    if step is None:
        return {}
    return {
        "schedule/stage": step.stage,
        "schedule/epoch": step.epoch,
        "schedule/phase": step.phase,
        "schedule/learner": step.seat,
    }


def lesson_tokens(lessons: Sequence[Lesson]) -> int:
    """Tokens that the learner was given, prompts too; those that lessons share count each time."""
    return sum(len(sample.ids) for lesson in lessons for sample in members(lesson))


def staleness(episodes: Sequence[Episode], versions: Mapping[str, int]) -> dict[str, float]:
    """How many updates behind the learner those were who spoke what is learned from now."""
    behind = [
        versions[turn.policy] - turn.version
        for episode in episodes
        if episode.void is None
        for turn in episode.turns
        if turn.trainable
    ]
    return {"staleness/mean": fmean(behind), "staleness/max": max(behind)} if behind else {}


def memory_peaks() -> dict[str, float]:
    """The most memory that this process has held so far, and on its GPU where it uses one."""
    unit = 1 if sys.platform == "darwin" else 1024  # of what the system counts in, in bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peaks = {"memory/cpu_peak_gb": peak / 2**30}
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        peaks["memory/gpu_peak_gb"] = torch.cuda.max_memory_allocated() / 2**30
    return peaks


def timings(
    metrics: dict[str, Any],
    split: Mapping[str, float],
    *,
    collect: float,
    learn: float,
    evaluate: float,
    total: float,
) -> dict[str, float]:
    """Where an iteration's seconds went. `split` divides the time of collecting: its generate,
    judge and wait come to `collect`."""
    return {
        "time/collect_s": collect,
        **{f"time/{what}_s": spent for what, spent in split.items()},
        "time/learn_s": learn,
        "time/evaluate_s": evaluate,
        "time/total_s": total,
        "turns_per_s": metrics["turns"] / (total - evaluate),
        # Games from a checkpoint were collected by an earlier process.
        **({"tokens_per_s": metrics["tokens"] / collect} if collect else {}),
        "lesson_tokens_per_s": metrics["lesson_tokens"] / learn,
    }
