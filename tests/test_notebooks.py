"""The notebooks for newcomers: the first one in a real Jupyter kernel, whose event loop is running
already; the others in IPython's own shell, or with SPARRING_FULL=1 each in a kernel, too."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import lives
import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="pip install ipykernel")
FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = ("first-game", "own-game", "data-frames")
FULL = os.environ.get("SPARRING_FULL") == "1"


class ForkedKernel:
    """In place of the Popen of a kernel: a life, which has the heavy imports behind it."""

    def __init__(self, command: list[str], cwd: str, **_: Any) -> None:
        launcher = importlib.util.find_spec(command[2])
        assert command[1] == "-m" and launcher is not None and launcher.origin is not None
        program = Path(launcher.origin)
        self.begun = lives.begin(*command[3:], cwd=Path(cwd), program=program, first=os.setsid)
        self.pid, self.poll, self.wait = self.begun.pid, self.begun.poll, self.begun.wait
        while os.getpgid(self.pid) != self.pid:  # whoever ends it ends its group
            time.sleep(0.01)
        process = self.begun.process
        self.terminate, self.kill = process.terminate, process.kill
        self.stdin = self.stdout = self.stderr = None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def in_kernel(name: str, folder: Path) -> list[Any]:
    """The outputs of each code cell."""
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient")
    from jupyter_client.provisioning import local_provisioner

    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_provisioner, "launch_kernel", ForkedKernel)
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(book, timeout=240, resources=resources).execute()
    return [cell.outputs for cell in book.cells if cell.cell_type == "code"]


def in_shell(name: str, folder: Path) -> list[str]:
    """What each code cell comes to, as IPython prints it."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for cell in book.cells:
            if cell.cell_type == "code":
                done = shell.run_cell(cell.source)
                done.raise_error()
                results.append(str(done.result))
    return results


def execute(name: str, folder: Path) -> list[str]:
    if not FULL:
        return in_shell(name, folder)
    outputs = [
        o[-1].get("data", {}).get("text/plain", "") if o else "" for o in in_kernel(name, folder)
    ]
    return outputs


def test_first_game_shows_progress_curves_and_results(tmp_path: Path) -> None:
    cells = in_kernel("first-game", tmp_path)
    outputs = [o for o in cells[0] if o.output_type != "stream"]
    assert [o.output_type for o in outputs] == ["display_data", "execute_result"]
    bar, run = (output.data["text/html"] for output in outputs)
    assert "3 of 3" in bar and "done" in bar and "entropy" in bar
    assert run.startswith("<iframe") and "data-chart" in run and "<script" not in run  # escaped
    results = [outputs[-1].data["text/plain"] for outputs in cells[1:]]
    assert "'first'" in results[0] and "'games': 20" in results[1]
    assert results[2] == "[1, 2, 3, 4]"


def test_own_game_is_written_played_and_learned(tmp_path: Path) -> None:
    results = execute("own-game", tmp_path)
    assert results[1].startswith("(") and results[1].endswith(", 20)")
    assert "learn/entropy" in results[3] and "mean" in results[4] and "'games': 50" in results[5]
    assert (tmp_path / "runs/counting/report.html").is_file()


def test_data_frames_hold_metrics_turns_and_advantages(tmp_path: Path) -> None:
    results = execute("data-frames", tmp_path)
    assert results[0] == "(0.0003, [1, 2, 3])" and "learn/canary" in results[1]
    assert "reply" in results[3] and "showdown" in results[5] and "advantage" in results[6]


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_valid_and_keep_no_output(name: str) -> None:
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert code and all(c.outputs == [] and c.execution_count is None for c in code)
