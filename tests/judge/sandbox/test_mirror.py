"""What both ends of the link hold: one object stays one, and the other end's changes arrive."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any

import pytest

from sparring.judge.sandbox.inside.files import Files, inside
from sparring.judge.sandbox.inside.mirror import Mirror, restore, share, shared


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1, [2], {3: [4]}], [9, [2, 5], {3: []}, 7]),
        ({"a": [1]}, {"b": 2, "a": [3]}),
        (Counter("aab"), Counter("bb")),
        (defaultdict(list, {1: [2]}), defaultdict(list, {1: [2, 3]})),
        ({1, 2}, {3}),
        (deque([1]), deque([2, 3])),
        (bytearray(b"a"), bytearray(b"bc")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_container_becomes_another_and_stays_itself(old: Any, new: Any) -> None:
    assert restore(old, new) is old
    assert old == new


def test_what_is_within_stays_itself_too() -> None:
    old = {"rows": [[1], [2]]}
    row = old["rows"][1]
    restore(old, {"rows": [[1], [5, 6]]})
    assert old["rows"][1] is row and row == [5, 6]


def test_one_object_in_two_positions_is_one_again() -> None:
    row = [0]
    value = {"a": [row, row], "b": (row, 1), "c": [[0]]}
    twice = shared(value)
    assert twice == [[[0, 1], [0, 0]], [[1, 0], [0, 0]]]
    copied = json.loads(json.dumps(value))
    share(copied, twice[:1])
    assert copied["a"][0] is copied["a"][1] and copied["c"][0] is not copied["a"][0]
    assert shared([[0], [0]]) == []


def test_two_mirrors_agree_and_let_go() -> None:
    here, there = Mirror(copy.deepcopy), Mirror(copy.deepcopy)
    mine = here.hold(3, [1, 2])
    there.hold(3, [1, 2])
    mine.append(5)
    there.apply(here.changes(), lambda form: form)
    assert there.held[3][0] == [1, 2, 5] and here.changes() == there.changes() == []
    assert here.drop_unused() == []
    del mine
    assert here.drop_unused() == [3] and not here.held


def test_files_of_one_folder_come_to_the_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    mine, yours = Files(str(one)), Files(str(other))
    (one / "deep").mkdir()
    (one / "deep" / "a.txt").write_text("a")
    os.symlink("/etc/hostname", one / "link")
    yours.apply(mine.changes())
    assert (other / "deep" / "a.txt").read_text() == "a" and not (other / "link").exists()
    assert yours.changes() == mine.changes() == []
    (other / "deep" / "a.txt").unlink()
    (other / "deep").rmdir()
    mine.apply(yours.changes())
    assert not (one / "deep").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", 5])
def test_no_path_leaves_the_folder(path: Any) -> None:
    with pytest.raises(ValueError, match="no path below"):
        inside(path)
