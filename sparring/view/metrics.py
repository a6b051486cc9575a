"""What each metric is called in plain English, and which curves belong on one chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sparring.core.formatting import humanise
from sparring.core.plugin import load_all
from sparring.view.markup import (
    game_name,
    opponent_name,
    seat_colour,
    seat_name,
    seat_number,
)

EVALUATION, REWARDS, GAMES = "How well it plays", "Rewards", "How the games go"
LEARNING, SPEED = "How it learns", "Time and speed"
SECTIONS = (EVALUATION, REWARDS, GAMES, LEARNING, SPEED)  # unknown prefixes come after these
HELD_OUT = "held_out"  # eval/<game>/held_out/<measure>
MOST_SERIES = 6  # more curves than this on one chart cannot be told apart


@dataclass(frozen=True)
class ChartSpec:
    """Where one metric is drawn: section, chart, and the name of its curve on the chart."""

    section: str
    title: str
    explain: str = ""
    tag: str = ""  # the game, above the title
    label: str = ""  # of the curve, where a chart has several
    percent: bool = False
    whole: bool = False  # the axis of a share runs from 0 to 100 %
    colour: str = ""  # of a curve that is a seat's


@dataclass
class Chart:
    """One chart and the metrics on it, as (key, label)."""

    spec: ChartSpec
    curves: list[tuple[str, str]] = field(default_factory=list)
    colours: dict[str, str] = field(default_factory=dict)  # key -> a seat's colour


# key -> section, title, explanation, is a share
KNOWN: dict[str, tuple[str, str, str, bool]] = {
    "eval/score": (
        EVALUATION,
        "Score that picks the best checkpoint",
        "Of the policy as it was trained to play, sampled; higher is better.",
        False,
    ),
    "episodes": (GAMES, "Games played", "Finished games in each iteration.", False),
    "tokens": (GAMES, "Tokens sampled", "By all players in each iteration.", False),
    "turns": (GAMES, "Turns taken", "Replies of all players in each iteration.", False),
    "rate/invalid": (
        GAMES,
        "Games ended by an invalid move",
        "Share of games in which a player broke the rules and forfeited.",
        True,
    ),
    "rate/void": (
        GAMES,
        "Void games",
        "Share of games without a fair outcome; they are not trained on.",
        True,
    ),
    "length/tokens": (GAMES, "Length of a reply", "Mean tokens a player says per turn.", False),
    "length/turns": (GAMES, "Length of a game", "Mean turns per game.", False),
    "reward/avg_batch_reward": (REWARDS, "Mean reward", "Of all who learn, over all games.", False),
    "lesson_tokens": (
        LEARNING,
        "Tokens learned from",
        "In each iteration, prompts included.",
        False,
    ),
    "lessons": (LEARNING, "Lessons", "Samples learned from in each iteration.", False),
    "guard/rollbacks": (
        LEARNING,
        "Roll-backs",
        "How often the guard has gone back to the best checkpoint.",
        False,
    ),
    "turns_per_s": (SPEED, "Turns per second", "Replies collected per second of play.", False),
    "tokens_per_s": (SPEED, "Tokens per second", "Sampled tokens per second of play.", False),
    "lesson_tokens_per_s": (
        SPEED,
        "Tokens learned from per second",
        "Of learning, prompts included.",
        False,
    ),
}
# the last part of learn/<key> or learn/<policy>/<key>
LEARN: dict[str, tuple[str, str, bool]] = {
    "loss": ("Loss", "What the optimizer lowers. In self-play it need not fall.", False),
    "entropy": (
        "How sure the policy is (entropy)",
        "Nats per token: high is undecided, near zero is set in its ways.",
        False,
    ),
    "kl": (
        "Distance from the reference (KL)",
        "Nats per token between the policy and the one that holds it back.",
        False,
    ),
    "value_loss": (
        "Error of the critic",
        "Half the squared gap between the value it gives a reply and what came of it.",
        False,
    ),
    "moved": (
        "Distance from the policy that played",
        "Nats per token that learning from a batch has moved it.",
        False,
    ),
    "stopped": ("Epochs cut short", "Whether it had moved far enough to stop.", False),
    "importance_weight": (
        "Importance weights",
        "Mean weight of a token for being sampled with other probabilities than the learner's.",
        False,
    ),
    "masked_rate": ("Masked tokens", "Share of tokens left out for the same reason.", True),
    "clip_rate": (
        "Clipped updates",
        "Share of tokens held back because the policy had moved far enough.",
        True,
    ),
    "canary": (
        "Weight-sync canary",
        "Gap between logprobs as sampled and as learned from; should stay near zero.",
        False,
    ),
    "grad_norm": ("Size of the gradient", "Its norm before clipping.", False),
    "accuracy": (
        "Pairs ranked correctly",
        "Share of pairs whose chosen answer gained more than the rejected one.",
        True,
    ),
    "margin": ("Margin between the answers", "Reward of the chosen less the rejected one.", False),
    "chosen": ("Reward of chosen answers", "What the policy has learned to prefer them by.", False),
    "rejected": ("Reward of rejected answers", "Below 0: less likely than before.", False),
    "lr": ("Learning rate", "How large a step each update takes.", False),
    "steps": ("Optimizer steps", "Updates of the weights in each iteration.", False),
    "skipped": ("Steps not taken", "Because the gradient was not a finite number.", False),
}
# eval/<game>/<key>
EXACT: dict[str, tuple[str, str, bool]] = {
    "regret": (
        "Regret per move",
        "Game value a move gives away under perfect play; 0 is perfect.",
        False,
    ),
    "exploitability": (
        "Exploitability",
        "Chips per hand the policy loses to an opponent who knows it, forfeits for illegal answers "
        "included; 0 is unbeatable.",
        False,
    ),
    "exploitability_low": ("Exploitability, at least", "Lower end of the 95 % interval.", False),
    "exploitability_high": ("Exploitability, at most", "Upper end of the 95 % interval.", False),
    "exploitability_legal": (
        "Exploitability of legal answers",
        "The same, as if the policy could give no illegal answer.",
        False,
    ),
    "nash_conv": (
        "NashConv",
        "What the best responses of all seats together would gain; 0 is an equilibrium.",
        False,
    ),
    "nash_conv_legal": (
        "NashConv of legal answers",
        "The same, as if the policy could give no illegal answer.",
        False,
    ),
    "regret_all": (
        "Regret over all positions",
        "Game value that a move gives away, averaged over every position there is.",
        False,
    ),
    "surplus": (
        "Share of the possible gain",
        "What trading gained both players, against the most it could have.",
        True,
    ),
    "illegal_mass": (
        "Probability of an illegal answer",
        "Mass the policy puts on answers that are no legal action.",
        True,
    ),
}
# the exact measures worth a headline
HEADS = ("regret", "exploitability", "surplus", "score", "agreement")
EVENTS = {
    "rollback": "Rolled back",
    "stopped": "Stopped",
    "damaged_checkpoint": "Damaged checkpoint",
    "resumed": "Resumed",
    "imitated": "Imitation ended",
    "curriculum": "Next level",
    "config": "Config changed",
    "not_trainable": "Not trained",
    "duplicates": "Lines written twice",
}
ENDINGS = {"wins": "Won", "draws": "Drawn", "losses": "Lost", "invalid": "Invalid move"}
SHARES = ("rate", "share", "fraction", "accuracy", "validity")


def event_title(event: Mapping[str, Any]) -> str:
    kind = str(event.get("event", "event"))
    return EVENTS.get(kind) or humanise(kind)


def is_calm(event: Mapping[str, Any]) -> bool:
    """Whether an event needs no attention."""
    return event.get("event") in ("resumed", "config", "not_trainable", "imitated", "curriculum")


def charts(keys: Iterable[str]) -> dict[str, list[Chart]]:
    """All metrics, by section and chart. Nothing is dropped, known or not."""
    keys = list(keys)
    sections: dict[str, dict[tuple[str, str], Chart]] = {section: {} for section in SECTIONS}
    for key in sorted(keys, key=_rank):
        where = chart_spec(key)
        group = sections.setdefault(where.section, {})
        chart = group.setdefault((where.tag, where.title), Chart(where))
        chart.curves.append((key, where.label))
        if where.colour:
            chart.colours[key] = where.colour
    return {
        section: [part for chart in group.values() for part in _parts(chart)]
        for section, group in sections.items()
        if group
    }


def chart_spec(key: str) -> ChartSpec:
    if key in KNOWN:
        section, title, explain, percent = KNOWN[key]
        return ChartSpec(section, title, explain, percent=percent)
    head, *rest = key.split("/")
    if head == "eval" and rest:
        return _evaluation(rest)
    if head in ("reward", "baseline") and len(rest) >= 2:
        return _by_seat(head, rest[0], "/".join(rest[1:]))
    if head == "learn" and rest:
        title, explain, percent = LEARN.get(rest[-1], (humanise(rest[-1]), "", False))
        return ChartSpec(LEARNING, title, explain, label="/".join(rest[:-1]), percent=percent)
    if head == "staleness" and rest:
        explain = "By how many updates the weights that played are behind; 0 unless played ahead."
        return ChartSpec(LEARNING, "How old the games are", explain, label=humanise(rest[-1]))
    if head == "time" and rest:
        label = humanise(rest[-1].removesuffix("_s"))
        explain = "Wall-clock of each part of an iteration."
        return ChartSpec(SPEED, "Seconds per iteration", explain, label=label)
    if head == "memory" and rest:
        label = humanise(rest[-1].removesuffix("_peak_gb")).replace("Cpu", "CPU")
        explain = "The most that the run's process has held so far, in GB."
        return ChartSpec(SPEED, "Peak memory", explain, label=label.replace("Gpu", "GPU"))
    if head == "before_imitation" and rest:  # one measurement: the table of imitation has it, too
        spec = chart_spec("/".join(rest))
        tag = " · ".join(filter(None, ("Before imitation", spec.tag)))
        return replace(spec, section="Imitation", tag=tag)
    if head == "curriculum" and len(rest) == 1:
        return ChartSpec(GAMES, "Level of the curriculum", "From 0.", tag=game_name(rest[0]))
    if head == "verdicts" and rest:
        label = humanise(" ".join(rest))
        return ChartSpec("Verdicts", "What the judge ruled", "Rulings by kind.", label=label)
    return _unknown(key, head, rest)


def _evaluation(rest: list[str]) -> ChartSpec:
    *game, last = rest
    tag = game_name(game[0]) if game else ""
    if len(game) < 2:
        title, explain, percent = measure(last)
        return ChartSpec(EVALUATION, title, explain, tag=tag, percent=percent)
    if game[1] == HELD_OUT:
        return _held_out(game[0], game[2:], last)
    against = f"against {opponent_name('/'.join(game[1:]))}"
    if last == "not_lost":
        title, explain = f"Share of games not lost, {against}", "Won or drawn; higher is better."
        return ChartSpec(EVALUATION, title, explain, tag=tag, percent=True, whole=True)
    if last in ENDINGS:
        title, explain = f"How games end, {against}", "Shares of all games played."
        return ChartSpec(EVALUATION, title, explain, tag, ENDINGS[last], percent=True, whole=True)
    if last == "games":
        title, explain = "Evaluation games", "How many games each evaluation rests on."
        return ChartSpec(EVALUATION, title, explain, label=f"{tag}, {against}")
    return ChartSpec(EVALUATION, f"{humanise(last)}, {against}", tag=tag, percent=_is_share(last))


def _held_out(game: str, rest: list[str], last: str) -> ChartSpec:
    """A game's measures on problems that are not trained on."""
    tag, where = game_name(game), "on held-out problems"
    if rest == ["reward"]:
        explain, colour = "Mean reward of each seat.", seat_colour(game, last)
        title = f"Reward by seat, {where}"
        return ChartSpec(EVALUATION, title, explain, tag, seat_name(last), colour=colour)
    if last == "games":
        title, explain = "Evaluation games", "How many games each evaluation rests on."
        return ChartSpec(EVALUATION, title, explain, label=f"{tag}, {where}")
    title, explain, percent = measure(last)
    return ChartSpec(EVALUATION, f"{title}, {where}", explain, tag, percent=percent)


def measure(key: str) -> tuple[str, str, bool]:
    """Title, explanation and whether it is a share, of what an evaluation measures in a game."""
    for head, title, explain in (
        ("value_", "Value for", "What legal answers bring this seat against themselves."),
        ("best_response_", "Best response of", "The most this seat can get from the policy."),
    ):
        if key.startswith(head):
            return f"{title} {seat_name(key.removeprefix(head))}", explain, False
    return measures().get(key, (humanise(key), "", _is_share(key)))


@cache
def measures() -> dict[str, tuple[str, str, bool]]:
    """What is known of games' measures: of all games, and as plug-ins name their own."""
    return EXACT | {
        key: known for brought in load_all("measures") for key, known in brought.items()
    }


def _by_seat(head: str, game: str, seat: str) -> ChartSpec:
    if head == "reward":
        title, explain = "Reward by seat", "Mean reward of each seat, over all games."
    else:
        title, explain = "What each seat expects", "Running mean that rewards are measured against."
    return ChartSpec(
        REWARDS, title, explain, game_name(game), seat_name(seat), colour=seat_colour(game, seat)
    )


def _unknown(key: str, head: str, rest: list[str]) -> ChartSpec:
    section = {"reward": REWARDS, "baseline": REWARDS, "rate": GAMES, "length": GAMES}.get(head)
    if section is None and key.endswith("_s"):
        section = SPEED
    if section is None:
        section = humanise(head) if rest else "Other"
    tag = " · ".join(humanise(part) for part in rest[:-1])
    last = rest[-1] if rest else head
    share = head == "rate" or _is_share(last)
    title, explain, percent = measures().get(key) or measures().get(
        last, (humanise(last), "", share)
    )
    return ChartSpec(section, title, explain, tag=tag, percent=percent)


def _is_share(name: str) -> bool:
    words = name.split("_")
    return "learning" not in words and any(word in SHARES for word in words)


def _rank(key: str) -> int:
    """What matters most comes first within its section; the rest as it comes."""
    last = key.rpartition("/")[2]
    first = ("score", "not_lost", *measures(), "wins", "draws", "losses", "invalid")
    after = (*(f"learn/{name}" for name in LEARN), *KNOWN, "time/total_s")
    if key.startswith("eval/") and last in first:
        return first.index(last)
    if key in after:
        return 20 + after.index(key)
    head, *rest = key.split("/")
    if head in ("reward", "baseline") and len(rest) > 1:
        return 90 + 8 * (head == "baseline") + seat_number(rest[0], rest[-1])
    return 200 if head == "eval" else 100


def _parts(chart: Chart) -> list[Chart]:
    """A chart with too many curves becomes several."""
    cuts = range(0, len(chart.curves), MOST_SERIES)
    if len(cuts) == 1:
        return [chart]
    titles = [f"{chart.spec.title} ({n + 1} of {len(cuts)})" for n in range(len(cuts))]
    return [
        Chart(replace(chart.spec, title=title), chart.curves[at : at + MOST_SERIES], chart.colours)
        for title, at in zip(titles, cuts, strict=True)
    ]
