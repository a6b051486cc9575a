"""Tasks come from files, folders and our own problems; test splits stay out of training."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.run.config import TasksConfig
from sparring.tasks import choose_task, load_tasks, training_tasks
from sparring.tasks.source import mbpp_split, parted


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def mbpp(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"task_id": n, "text": f"Task {n}.", "code": "x = 1", "test_list": ["assert x == 1"]}
        for n in numbers
    ]


def train_on(source: str, split: str = "train", limit: int | None = None) -> list[str]:
    config = TasksConfig.model_validate({"source": source, "split": split, "limit": limit})
    return [task.id for task in training_tasks(config, "python")]


def test_tasks_of_one_id_are_held_out_together_and_something_is_left_to_learn_from() -> None:
    """Counted one by one, a file of one id was held out as a whole, and nothing trained."""
    one, three = ([Task(str(i % ids), data={}) for i in range(30)] for ids in (1, 3))
    assert [len(part) for part in parted(one, 0.2)] == [30, 0]
    learned, held_out = parted(three, 0.2)
    assert (len(learned), len(held_out)) == (20, 10)
    assert not {t.id for t in learned} & {t.id for t in held_out}
    assert [len(part) for part in parted([Task(str(i), data={}) for i in range(30)], 0.2)] == [
        24,
        6,
    ]


def test_published_splits_of_mbpp() -> None:
    assert Counter(mbpp_split(n) for n in range(1, 975)) == {
        "prompt": 10,
        "test": 500,
        "validation": 90,
        "train": 374,
    }
    assert [mbpp_split(n) for n in (10, 11, 510, 511, 600, 601)] == [
        *("prompt", "test", "test", "validation", "validation", "train")
    ]


def test_mbpp_test_ids_never_train(tmp_path: Path) -> None:
    source = write(tmp_path / "all.jsonl", mbpp(2, 11, 510, 511, 601, 974))
    assert train_on(source) == ["601", "974"]
    assert train_on(source, "validation") == ["511"]
    assert train_on(source, "train+validation+prompt") == ["2", "511", "601", "974"]
    assert train_on(source, limit=1) == ["601"]
    assert [t.id for t in load_tasks(source, "test")] == ["11", "510"]
    for split in ("test", "train+test"):
        with pytest.raises(ConfigError, match="test splits never enter training"):
            train_on(source, split)
    only_test = write(tmp_path / "test.jsonl", mbpp(11, 12))
    with pytest.raises(ConfigError, match="no task in its split 'train'"):
        train_on(only_test)


def test_humaneval_and_rows_marked_as_test_never_train(tmp_path: Path) -> None:
    rows = [{"task_id": "HumanEval/0", "prompt": "def f():"}]
    with pytest.raises(ConfigError, match="no task"):
        train_on(write(tmp_path / "humaneval.jsonl", rows))
    marked = [{"id": "a", "prompt": "A.", "split": "test"}, {"id": "b", "prompt": "B."}]
    assert train_on(write(tmp_path / "marked.jsonl", marked)) == ["b"]


def test_saved_folders_with_and_without_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"id": "a", "prompt": "A."}, {"id": "b", "prompt": "B."}])
    rows.save_to_disk(str(tmp_path / "flat"))
    assert train_on(str(tmp_path / "flat")) == ["a", "b"]
    held = datasets.Dataset.from_list([{"id": "c", "prompt": "C."}])
    datasets.DatasetDict(train=rows, test=held).save_to_disk(str(tmp_path / "split"))
    assert train_on(str(tmp_path / "split")) == ["a", "b"]
    for split in (None, "train+test"):
        assert [t.id for t in load_tasks(str(tmp_path / "split"), split)] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match=r"no split 'trian'; did you mean 'train'"):
        train_on(str(tmp_path / "split"), "trian")
    numbered = datasets.Dataset.from_list(mbpp(11, 700))
    numbered.save_to_disk(str(tmp_path / "mbpp"))
    assert train_on(str(tmp_path / "mbpp")) == ["700"]


def test_a_hub_split_that_hides_test_rows_is_caught(tmp_path: Path) -> None:
    """Whoever names a split `train` cannot thereby make MBPP's test rows trainable."""
    datasets = pytest.importorskip("datasets")
    folder = str(tmp_path / "renamed")
    datasets.DatasetDict(train=datasets.Dataset.from_list(mbpp(11, 700))).save_to_disk(folder)
    assert train_on(folder) == ["700"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"id": 1}\n{"id": \n', "line 2 .* is not JSON"),
        ("[1]\n", "line 1 .* is list, not an object"),
        ("\n\n", "holds no tasks"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_tasks(str(tmp_path / "bad.jsonl"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_tasks(str(tmp_path / "bad.jsonl"))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load_tasks(str(tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match=r"was not made by datasets.save_to_disk"):
        load_tasks(str(tmp_path))
    with pytest.raises(ConfigError, match=r"no problems 'pyton'.*did you mean 'python'"):
        load_tasks("shipped:pyton")
    with pytest.raises(ConfigError, match="no tasks could be had from 'nobody/no-such-set'"):
        load_tasks("nobody/no-such-set")


def test_a_walk_meets_every_task_once_a_round_and_hangs_on_the_seed_alone() -> None:
    tasks = [Task(id=str(i)) for i in range(10)]
    first = [choose_task(tasks, 7, i).id for i in range(10)]
    second = [choose_task(tasks, 7, i).id for i in range(10, 20)]
    assert sorted(first) == sorted(second) == [str(i) for i in range(10)]
    assert first != second
    assert [choose_task(tasks, 7, i).id for i in range(5, 15)] == [*first[5:], *second[:5]]
    assert [choose_task(tasks, 8, i).id for i in range(10)] != first
