"""The notebook on training, in a real Jupyter kernel, whose event loop is running already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "train.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list:
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="pip install ipykernel")
    import nbformat

    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.read(NOTEBOOK, as_version=4)
    paths = os.pathsep.join([str(NOTEBOOK.parents[1]), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        patch.setenv("OMP_NUM_THREADS", "1")
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(book, timeout=240, resources=resources).execute()
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_progress_is_one_output_that_changes_and_the_run_is_its_curves(cells: list) -> None:
    outputs = [o for o in cells[0].outputs if o.output_type != "stream"]
    assert [o.output_type for o in outputs] == ["display_data", "execute_result"]
    bar, run = (output.data["text/html"] for output in outputs)
    assert "3 of 3" in bar and "done" in bar and "entropy" in bar
    assert run.startswith("<iframe") and "data-chart" in run and "<script" not in run  # escaped


def test_metrics_turns_and_results_are_read_in_the_cell(cells: list) -> None:
    told = [cell.outputs[-1].data["text/plain"] for cell in cells[1:]]
    assert "learn/entropy" in told[0] and "reply" in told[1]
    assert "'games': 20" in told[2] and told[3] == "[1, 2, 3, 4]"


def test_the_notebook_keeps_no_output(cells: list) -> None:
    text = NOTEBOOK.read_text()
    assert '"outputs": []' in text and "text/html" not in text
