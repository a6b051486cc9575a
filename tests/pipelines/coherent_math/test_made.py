"""An output is made once, appears whole, and is made anew when what it is made from changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.core.errors import ConfigError
from sparring.pipelines.coherent_math.outputs import fingerprint, make


class Work:
    """Writes its text, and counts how often it was asked to."""

    def __init__(self, text: str = "done", error: Exception | None = None) -> None:
        self.text, self.error, self.calls = text, error, 0

    def __call__(self, place: Path) -> dict:
        self.calls += 1
        place.write_text(self.text)
        if self.error is not None:
            raise self.error
        return {"size": len(self.text)}


def test_what_is_there_is_not_made_again(tmp_path: Path):
    out, work = tmp_path / "a" / "out.txt", Work()
    first = make("x", out, {"seed": 1}, work)
    again = make("x", out, {"seed": 1}, work)
    assert work.calls == 1 and out.read_text() == "done"
    assert not first["skipped"] and again["skipped"] and again["size"] == 4
    assert sorted(p.name for p in out.parent.iterdir()) == ["out.txt", "out.txt.made.json"]


def test_other_inputs_make_it_anew_or_are_refused(tmp_path: Path):
    out = tmp_path / "out.txt"
    make("x", out, {"seed": 1}, Work("one"))
    with pytest.raises(ConfigError, match="choose another path"):
        make("x", out, {"seed": 2}, Work("two"))
    assert out.read_text() == "one"
    make("x", out, {"seed": 2}, Work("two"), remake=True)
    assert out.read_text() == "two"


def test_an_output_that_was_changed_is_made_anew(tmp_path: Path):
    out, work = tmp_path / "out.txt", Work()
    make("x", out, {}, work)
    out.write_text("meddled with")
    make("x", out, {}, work)
    assert work.calls == 2 and out.read_text() == "done"


def test_a_refusal_leaves_the_earlier_output_untouched(tmp_path: Path):
    out = tmp_path / "out.txt"
    make("x", out, {"seed": 1}, Work("one"))
    with pytest.raises(ConfigError, match="no"):
        make("x", out, {"seed": 2}, Work("two", ConfigError("no")), remake=True)
    assert out.read_text() == "one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.txt", "out.txt.made.json"]
    assert make("x", out, {"seed": 1}, Work())["skipped"]


def test_an_interrupted_work_finds_what_it_left_and_another_one_does_not(tmp_path: Path):
    out, left = tmp_path / "out.txt", tmp_path / ".out.txt.unfinished"
    with pytest.raises(OSError, match="full"):
        make("x", out, {"seed": 1}, Work("half", OSError("full")))
    assert left.read_text() == "half" and not out.exists()
    seen = []

    def work(place: Path) -> dict:
        seen.append(place.read_text() if place.exists() else None)
        place.write_text("whole")
        return {}

    make("x", out, {"seed": 1}, work)
    left.write_text("of another life")
    make("x", out, {"seed": 2}, work, remake=True)
    assert seen == ["half", None]


def test_killed_between_the_record_and_the_renaming(tmp_path: Path):
    out, work = tmp_path / "out.txt", Work()
    make("x", out, {}, work)
    out.rename(tmp_path / ".out.txt.unfinished")
    assert make("x", out, {}, work)["skipped"] and work.calls == 1 and out.is_file()


def test_fingerprints_tell_contents_apart(tmp_path: Path):
    (tmp_path / "f").write_text("a")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before and fingerprint("nano") == "nano"
    (tmp_path / "f").write_text("b")
    assert fingerprint(tmp_path) != before
