"""Before and after: the headline numbers, the table of results and the ladder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sparring.core.formatting import esc, number
from sparring.evaluation.significance import ends_differ, means_differ, shares_differ
from sparring.view.curves import Points
from sparring.view.markup import game_name, opponent_name
from sparring.view.metrics import ENDINGS, HEADS, chart_spec, measure, measures
from sparring.view.rundata import is_number

T = TypeVar("T")
SPANS = {"regret": 2.5}  # from the least to the most that one game can bring; 1 otherwise
UNTRAINED = "untrained"
MOST_HEADLINES = 4
# lower is better
FALLING = (
    *("regret", "regret_all", "exploitability", "exploitability_legal", "nash_conv"),
    *("nash_conv_legal", "illegal_mass"),
    *("invalid", "error_rate"),
)


@dataclass(frozen=True)
class Headline:
    """One number worth a glance. `better` is None where that is not defined."""

    title: str
    after: float
    before: float | None = None
    percent: bool = False
    better: bool | None = None
    tag: str = ""  # the game, above the title


def shares(result: object) -> dict[str, float]:
    """How games ended, as shares of all. Counts and shares may both be on record: whole numbers
    are counts, fractions that add up to no more than one are shares."""
    if not isinstance(result, Mapping):
        return {}
    chosen = {key: result[key] for key in ENDINGS if is_number(result.get(key))}
    games = result.get("games")
    endings = [chosen[key] for key in ("wins", "draws", "losses") if key in chosen]
    if not endings or not is_number(games) or games <= 0:
        return {}
    counted = all(isinstance(value, int) for value in endings) or sum(endings) > 1.001
    return {key: value / games if counted else float(value) for key, value in chosen.items()}


def not_lost(share: Mapping[str, float]) -> float:
    return share.get("wins", 0.0) + share.get("draws", 0.0)


def headlines(evaluation: dict[str, Any], data: dict[str, Points]) -> tuple[list[Headline], str]:
    """The few numbers at the top, and what they compare: the final table's where there is one,
    else the curves' ends."""
    chosen, compared = _from_table(evaluation), "From the untrained policy to the trained one."
    if not chosen:
        chosen, compared = _from_curves(data), "From the first measurement to the last."
    chosen = chosen[:MOST_HEADLINES]
    return chosen, compared if any(head.before is not None for head in chosen) else ""


def _from_table(evaluation: dict[str, Any]) -> list[Headline]:
    untrained = mapping(evaluation.get(UNTRAINED))
    first, rest = [], []
    for game, results in evaluation.items():
        if game == UNTRAINED or not isinstance(results, Mapping):
            continue
        before = mapping(untrained.get(game))
        of = game_name(game)
        for opponent, result in results.items():
            if opponent == "exact":
                first += _exact_headlines(of, results, before)
            elif share := shares(result):
                old = shares(before.get(opponent))
                title = f"Not lost, against {opponent_name(opponent)}"
                was = not_lost(old) if old else None
                games = (before[opponent]["games"], result["games"]) if old else (0, 0)
                moved = was is not None and shares_differ(was, not_lost(share), games)
                rest.append(_headline(of, title, not_lost(share), was, True, moved=moved))
    return _alternate(rest, first)


def _exact_headlines(
    of: str, results: Mapping[str, Any], before: Mapping[str, Any]
) -> list[Headline]:
    exact, was = mapping(results.get("exact")), mapping(before.get("exact"))
    chosen = []
    for key, value in exact.items():
        if is_number(value) and key in HEADS:
            title, _, percent = measure(key)
            old = was[key] if is_number(was.get(key)) else None
            moved = old is not None and _measure_moved(key, old, value, results)
            chosen.append(_headline(of, title, value, old, percent, key, moved=moved))
    return chosen


def _measure_moved(key: str, before: float, after: float, results: Mapping[str, Any]) -> bool:
    """A measure from every reply's probability is exact; others are means over games. A change too
    small to be written is none."""
    if number(before) == number(after):
        return False
    if key == "exploitability" and str(results.get("method") or "").startswith("exact"):
        return True
    exact = mapping(results.get("exact"))
    if is_number(exact.get(f"{key}_low")) and is_number(exact.get(f"{key}_high")):
        return not exact[f"{key}_low"] <= before <= exact[f"{key}_high"]
    played = [mapping(result).get("games") for result in results.values()]
    return means_differ(
        before, after, min((n for n in played if is_number(n)), default=0), SPANS.get(key, 1)
    )


def _from_curves(data: dict[str, Points]) -> list[Headline]:
    played = [key for key in data if key.endswith("/not_lost")]
    exact = [f"eval/{game}/{key}" for game in _games(data) for key in HEADS]
    wanted = _alternate(played, [key for key in exact if key in data])
    wanted += [key for key in data if "eval" in key.split("/")[0] and key.endswith(("_rate",))]
    wanted += ["eval/score"] if not wanted and "eval/score" in data else []
    wanted += [key for key in data if key.startswith("reward/")] if not wanted else []
    chosen = []
    for key in wanted:
        if points := data[key]:
            where = chart_spec(key)
            before = points[0][1] if len(points) > 1 else None
            title = ", ".join(part for part in (where.title, where.label) if part)
            last = key.rpartition("/")[2]
            known = last in measures() or last == "not_lost" or "eval" in key.split("/")[0]
            name = last if known else None
            moved = ends_differ(points)
            chosen.append(
                _headline(where.tag, title, points[-1][1], before, where.percent, name, moved=moved)
            )
    return chosen


def _headline(
    tag: str,
    title: str,
    after: float,
    before: float | None,
    percent: bool,
    key: str | None = "wins",
    *,
    moved: bool,
) -> Headline:
    """`better` is set only where a change is beyond chance."""
    better = None
    if before is not None and key is not None and moved:
        better = (after < before) == (key in FALLING)
    return Headline(title, after, before, percent, better, tag)


def _games(data: dict[str, Points]) -> list[str]:
    return list(dict.fromkeys(key.split("/")[1] for key in data if key.startswith("eval/")))


def _alternate(one: list[T], two: list[T]) -> list[T]:
    """Play first, then exact measures, in turns, so that four tiles show both."""
    chosen: list[T] = []
    for at in range(max(len(one), len(two))):
        chosen += one[at : at + 1] + two[at : at + 1]
    return chosen


def tiles(chosen: list[Headline], compared: str) -> str:
    parts = []
    for head in chosen:
        now = f'<b class="after">{number(head.after, head.percent)}</b>'
        was, trend = "", ""
        if head.before is not None:
            was = f'<span class="before">{number(head.before, head.percent)}</span>'
            was += '<span class="arrow" aria-label="then">→</span>'
            trend = {True: " better", False: " worse", None: ""}[head.better]
        tag = f'<p class="tag">{esc(head.tag)}</p>' if head.tag else ""
        parts.append(
            f'<div class="tile{trend}"><div>{tag}<p>{esc(head.title)}</p></div>'
            f'<div class="change">{was}{now}</div></div>'
        )
    if not parts:
        return ""
    caption = f'<p class="caption">{compared}</p>' if compared else ""
    return f'<div class="tiles">{"".join(parts)}</div>{caption}'


def results_table(evaluation: dict[str, Any]) -> str:
    """Per game and opponent how games ended, untrained above trained, and the exact measures."""
    untrained = mapping(evaluation.get(UNTRAINED))
    cards = []
    for game, results in evaluation.items():
        if game == UNTRAINED or not isinstance(results, Mapping):
            continue
        before = mapping(untrained.get(game))
        rows = [
            _opponent_rows(opponent, result, before.get(opponent))
            for opponent, result in results.items()
            if opponent != "exact" and shares(result)
        ]
        exact = _exact_list(mapping(results.get("exact")), mapping(before.get("exact")))
        if rows or exact:
            cards.append(
                f'<div class="card"><h3>{esc(game_name(game))}</h3>{_table(rows)}{exact}'
                f"{_played(results)}</div>"
            )
    return "".join(cards)


def _played(results: Mapping[str, Any]) -> str:
    """How the policy was asked in these games; older runs do not say."""
    chosen = [mapping(sampling) for sampling in results.get("sampling") or []]
    method = results.get("method")
    measured = f'<p class="caption">{esc(f"Measures: {method}.")}</p>' if method else ""
    if not chosen:
        return measured
    style = f", in the style “{results['style']}”" if "style" in results else ""
    words = asked_with(*chosen)
    asked = f"In these games the policy answered {words}{style}."
    return f'{measured}<p class="caption">{esc(asked)}</p>'


def asked_with(*samplings: Mapping[str, Any]) -> str:
    """Samplings in words: what is as usual is left out, and what all have in common comes once."""
    parts = [_sampling_words(sampling) for sampling in samplings]
    common = [word for word in parts[0] if all(word in other for other in parts[1:])]
    apart = [", ".join(w for w in words if w not in common) for words in parts]
    return ", ".join([" or ".join(filter(None, apart)), *common]).removeprefix(", ")


def _sampling_words(sampling: Mapping[str, Any]) -> list[str]:
    heat, most = sampling.get("temperature"), sampling.get("max_tokens")
    parts = (
        ["greedily" if heat == 0 else f"at temperature {number(heat)}"] if heat is not None else []
    )
    parts += [f"with up to {number(most)} token{'s' * (most != 1)}"] if is_number(most) else []
    parts += [f"top-p {sampling['top_p']}"] if sampling.get("top_p", 1) != 1 and heat != 0 else []
    parts += [f"top-k {sampling['top_k']}"] if sampling.get("top_k", 0) and heat != 0 else []
    return parts


def _table(rows: list[str]) -> str:
    if not rows:
        return ""
    heads = ("Against", "Policy", "Games", "How they ended", "Not lost", "Won", "Drawn", "Lost")
    kinds = ["", "", "num", "ended", *["num"] * 5]
    cells = "".join(
        f'<th class="{kind}">{name}</th>'
        for kind, name in zip(kinds, (*heads, "Invalid"), strict=True)
    )
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{cells}</tr></thead>'
        f"{''.join(rows)}</table></div>"
    )


def _opponent_rows(opponent: str, after: Any, before: Any) -> str:
    was = shares(before)
    span = 2 if was else 1
    name = opponent_name(opponent)
    lead = f'<th rowspan="{span}" scope="rowgroup">{esc(name[:1].upper() + name[1:])}</th>'
    rows = ""
    if was:
        rows = f'<tr class="was">{lead}{_cells("untrained", was, number(before["games"]))}</tr>'
        lead = ""
    rows += f"<tr>{lead}{_cells('trained', shares(after), number(after['games']))}</tr>"
    return f"<tbody>{rows}</tbody>"


def _cells(policy: str, share: dict[str, float], games: str) -> str:
    widths = {"win": share.get("wins", 0), "draw": share.get("draws", 0)}
    widths["loss"] = max(0.0, 1 - sum(widths.values()))
    bar = "".join(
        f'<i class="{kind}" style="width:{100 * width:.2f}%"></i>'
        for kind, width in widths.items()
        if width > 0
    )
    values = [not_lost(share), *(share.get(key) for key in ENDINGS)]
    numbers = "".join(
        f'<td class="num{" lead-figure" if at == 0 else ""}">'
        f"{'–' if value is None else number(value, True)}</td>"
        for at, value in enumerate(values)
    )
    return (
        f'<td>{policy}</td><td class="num">{games}</td>'
        f'<td class="ended"><span class="bar">{bar}</span></td>{numbers}'
    )


def _exact_list(exact: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    items = []
    for key, value in exact.items():
        if not is_number(value):
            continue
        title, explain, percent = measure(key)
        was = f"{number(before[key], percent)} → " if is_number(before.get(key)) else ""
        items.append(
            f"<div><dt>{esc(title)}</dt><dd>{was}<b>{number(value, percent)}</b></dd>"
            f'<dd class="explain">{esc(explain)}</dd></div>'
        )
    return f'<dl class="exact">{"".join(items)}</dl>' if items else ""


def ladder_figure(ratings: list[dict[str, Any]]) -> str:
    """Elo points as dots, their 95 % intervals as lines, the best on top."""
    ranked = sorted(ratings, key=lambda rating: -rating["elo"])
    names = [str(rating.get("name", "?")) for rating in ranked]
    left = 34 + 9 * min(28, max(map(len, names)))
    width, row, top, bottom, right = 860, 34, 8, 26, 200
    height = top + row * len(ranked) + bottom
    low, high = min(r["low"] for r in ranked), max(r["high"] for r in ranked)
    pad = 0.04 * (high - low) or 1.0
    low, high = low - pad, high + pad

    def at(value: float) -> float:
        return round(left + (width - left - right) * (value - low) / (high - low), 1)

    parts = []
    for tick in ticks(low, high, 6):
        x, end = at(tick), height - bottom
        parts.append(f'<line class="gridline" x1="{x}" x2="{x}" y1="{top}" y2="{end}"/>')
        parts.append(f'<text class="tick mid" x="{x}" y="{height - 8}">{number(tick)}</text>')
    for rank, (name, rating) in enumerate(zip(names, ranked, strict=True)):
        parts.append(_rung(rank, name, rating, at, top + row * rank + row / 2, width))
    return f'<svg class="ladder" viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high: steps of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(1, about)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * s for s in (1, 2, 2.5, 5, 10) if power * s >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _rung(rank: int, name: str, rating: dict[str, Any], at: Any, y: float, width: float) -> str:
    low, high, middle = at(rating["low"]), at(rating["high"]), at(rating["elo"])
    short = name if len(name) <= 28 else f"{name[:27]}…"
    kind = "fixed" if name in ("random", "perfect", "scripted", "base") else "own"
    elo, least, most = (round(rating[key]) for key in ("elo", "low", "high"))
    interval = f"{elo:+d}  ({least:+d} to {most:+d})".replace("-", "−").replace("+0", "0")
    games = f", {number(rating['games'])} games" if is_number(rating.get("games")) else ""
    return (
        f'<g class="rung {kind}"><title>{esc(f"{name}: {interval}{games}")}</title>'
        f'<text class="rank" x="4" y="{y + 4}">{rank + 1}</text>'
        f'<text class="name" x="26" y="{y + 4}">{esc(short)}</text>'
        f'<line class="whisker" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
        f'<path class="whisker" d="M{low},{y - 5}v10M{high},{y - 5}v10"/>'
        f'<circle cx="{middle}" cy="{y}" r="5.5"/>'
        f'<text class="tick end" x="{width - 4}" y="{y + 4}">{esc(interval)}</text></g>'
    )


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
