"""The notebook for a cloud GPU, executed whole on a CPU with nano."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.sandbox import probe

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "adversarial.ipynb"


@pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
def test_every_cell_of_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cell by cell in one namespace, as a notebook's kernel does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARRING_SMOKE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = json.loads(NOTEBOOK.read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "adversarial 6/6" in said and "held-out baseline tests passed" in said
    assert "checkpoint_stage_2_epoch_3" in said and "of 2 tests passed" in said
    assert (tmp_path / "runs/adversarial-notebook/report.html").is_file()
    solved = json.loads((tmp_path / "runs/adversarial-notebook/solved.json").read_text())
    assert len(solved["results"][0]["attempts"]) == 2


def test_the_notebook_keeps_no_output_and_no_machine_of_its_own() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
