"""The report of a warm start says apart what imitation brought and what self-play added."""

from __future__ import annotations

from pathlib import Path

from sparring.view.imitation import section
from sparring.view.rundata import RunData


def match(wins: int, losses: int) -> dict[str, float]:
    return {"games": 10, "wins": wins, "draws": 0, "losses": losses, "invalid": 0}


def test_three_stages_stand_beside_each_other() -> None:
    fitted = {"random": match(6, 4), "exact": {"regret": 0.5}}
    trained = {"random": match(9, 1), "exact": {"regret": 0.125}, "after_imitation": fitted}
    untrained = {"kuhn": {"random": match(0, 10), "exact": {"regret": 2.0}}}
    events = [{"iteration": 0, "event": "imitated", "detail": "main <perfect>:20"}]
    evaluation = {"kuhn": trained, "untrained": untrained}
    part = section(RunData("run", Path("run"), evaluation=evaluation, events=events))
    assert part is not None
    for cells in (("0 %", "60 %", "90 %", "30 %"), ("2", "0.5", "0.125", "−0.375")):
        row = "".join(f'<td class="num">{cell}</td>' for cell in cells)
        assert row in part.results
    assert '<div class="scroll"><table' in part.results  # a phone reaches every column
    assert "main &lt;perfect&gt;:20" in part.results and "iteration 0" in part.results


def test_a_run_that_imitated_nobody_has_no_such_part() -> None:
    evaluation = {"kuhn": {"random": match(9, 1)}, "untrained": {}}
    assert section(RunData("run", Path("run"), evaluation=evaluation)) is None
