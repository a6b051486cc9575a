"""The notebook for a cloud GPU, executed whole on a CPU with nano."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from lives import sparring

from sparring.judge.sandbox import probe

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

    def forked(*words: str) -> None:
        life = sparring(*words[len(names["SPARRING"]) :], cwd=tmp_path)
        print(life.out, life.err)
        assert life.code == 0

    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)
        names["sh"] = forked  # the same commands, from a process that has the imports behind it
    said = capsys.readouterr().out
    assert "adversarial 6/6" in said and "held-out baseline tests passed" in said
    assert "checkpoint_stage_2_epoch_3" in said and "of 2 tests passed" in said
    assert (tmp_path / "runs/adversarial-notebook/report.html").is_file()
    solved = json.loads((tmp_path / "runs/adversarial-notebook/solved.json").read_text())
    assert len(solved["results"][0]["attempts"]) == 2


def set_up() -> str:
    notebook = json.loads(NOTEBOOK.read_text())
    return next("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")


def test_colab_keeps_runs_on_the_drive_that_it_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted: list[str] = []
    colab = types.ModuleType("google.colab")
    colab.drive = types.SimpleNamespace(mount=mounted.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(set_up(), "set up", "exec"), names)
    assert mounted == ["/content/drive"]
    assert names["STAYS"] == Path("/content/drive/MyDrive/sparring")


@pytest.mark.parametrize(
    ("variable", "studio", "where", "stays"),
    [
        ("KAGGLE_KERNEL_RUN_TYPE", False, "Kaggle", "/kaggle/working"),
        ("", True, "Lightning", None),
        ("", False, "elsewhere", "."),
    ],
)
def test_every_machine_has_a_folder_that_stays(
    variable: str,
    studio: bool,
    where: str,
    stays: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "Interactive")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    home = tmp_path / "studio"
    if studio:
        home.mkdir()
    cell = set_up().replace("/teamspace/studios/this_studio", str(home))
    exec(compile(cell, "set up", "exec"), names)
    assert names["place"]() == where
    assert names["STAYS"] == (Path(stays) if stays else home)


def test_the_set_up_finds_clones_or_asks_for_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(set_up(), "set up", "exec"), names)
    with pytest.raises(SystemExit, match="set REPO"):
        names["repository"](tmp_path)
    asked: list[tuple[str, ...]] = []
    names["REPO"], names["sh"] = "https://example.org/sparring.git", lambda *w: asked.append(w)
    assert names["repository"](tmp_path) == tmp_path / "sparring"
    assert asked[0][:2] == ("git", "clone")
    (tmp_path / "pyproject.toml").touch()
    assert names["repository"](tmp_path) == tmp_path


def test_the_notebook_keeps_no_output_and_no_machine_of_its_own() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
