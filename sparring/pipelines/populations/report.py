"""The part of a report on a population: the payoffs of each against each, the Nash mixture, and the
cycles that ratings hide. Shown for a league, and for the ladder of a run's checkpoints."""

from __future__ import annotations

from typing import Any

from sparring.core.formatting import esc
from sparring.evaluation.population import Population
from sparring.evaluation.ratings import Result
from sparring.view.part import ReportPart, Section
from sparring.view.rundata import RunData, read_object


def section(run: RunData) -> ReportPart | None:
    """The league where there is one, the ladder otherwise."""
    league = read_object(run.path / "population.json")
    try:
        if league:
            population = _population(league["results"], league["players"])
        else:
            population = _population(read_object(run.path / "ladder.json").get("results") or [])
    except (KeyError, TypeError, ValueError):
        return None  # torn or strange, and left out like everything else that is
    if len(population.names) < 2:
        return None
    body = _intro(population, league) + f'<div class="card scroll">{_matrix(population)}</div>'
    return ReportPart(sections=[Section("population", "Population", body)])


def _population(results: list[dict[str, Any]], names: list[str] | None = None) -> Population:
    counted = [Result(**result) for result in results]
    players = dict.fromkeys(name for result in counted for name in result[:2])
    return Population.of(names or list(players), counted)


def _intro(population: Population, league: dict[str, Any]) -> str:
    cycles = population.cycles()
    circle = "; ".join(" beats ".join([*c, c[0]]) for c in cycles)
    cycle = (
        f"<strong>Cycle: {esc(circle)}.</strong> No single number ranks those."
        if cycles
        else "No cycle among those who beat each other beyond chance."
    )
    met = ""
    if league.get("kind"):
        met = f" Opponents are drawn by the mixture <code>{esc(league['kind'])}</code>."
    return (
        '<p class="intro">What each (row) took from each (column): the mean reward of a game. '
        f"{cycle}{met}</p>"
    )


def _matrix(population: Population) -> str:
    nash, ranks = population.mixture("nash"), population.mixture("alpharank")
    heads = "".join(f"<th>{esc(name)}</th>" for name in population.names)
    most = float(abs(population.payoffs).max()) or 1.0
    rows = []
    for i, name in enumerate(population.names):
        cells = "".join(
            _cell(float(population.payoffs[i, j]), most, int(population.games[i, j]), i == j)
            for j in range(len(population.names))
        )
        shares = f"<td>{nash[name]:.2f}</td><td>{ranks[name]:.2f}</td>"
        rows.append(f'<tr><th scope="row">{esc(name)}</th>{cells}{shares}</tr>')
    return (
        f'<table class="results"><thead><tr><th></th>{heads}<th>Nash</th><th>α-rank</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(payoff: float, most: float, games: int, itself: bool) -> str:
    if itself or not games:
        return "<td>–</td>"
    colour = "var(--green)" if payoff > 0 else "var(--red)"
    signed = f"{payoff:+.2f}".replace("-", "−")
    depth = round(60 * abs(payoff) / most)
    return (
        f'<td title="{games} games" style="background: color-mix(in srgb, {colour} {depth}%, '
        f'transparent)">{signed}</td>'
    )
