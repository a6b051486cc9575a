"""Steps are padded to the size that is fastest, and give the same digits."""

import asyncio

import pytest
import torch
from test_runner import digits, runner_of, talk

from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.row_counts import RowCounts, fastest_sizes
from sparring.engines.local.runner import Runner


def test_steps_are_padded_to_the_fastest_size_that_holds_their_rows() -> None:
    seconds = {16: 3.0, 32: 5.0, 64: 2.0, 128: 3.2, 192: 2.4, 256: 4.0}
    expected = {16: 64, 32: 64, 64: 64, 128: 192, 192: 192, 256: 256}
    assert fastest_sizes(list(seconds), [seconds]) == expected
    for size, best in expected.items():  # none is slower than a larger one
        assert seconds[best] == min(took for more, took in seconds.items() if more >= size)
    assert fastest_sizes([8, 16], [{8: 1.0, 16: 1.0}]) == {8: 8, 16: 16}, "no more than needed"
    assert fastest_sizes([8, 16], [{8: 1.2, 16: 1.0}]) == {8: 8, 16: 16}, "noise"


def test_a_larger_size_that_was_lucky_once_is_not_padded_to() -> None:
    """On a GPU that others keep busy: the quietest round of each size says that the larger one is
    quicker, one round by itself that it is not."""
    lucky = [{16: 3.0, 64: 1.0}, {16: 3.5, 64: 6.0}, {16: 3.0, 64: 1.1}]
    assert fastest_sizes([16, 64], lucky) == {16: 16, 64: 64}
    assert fastest_sizes([16, 64], [lucky[0], lucky[2]]) == {16: 64, 64: 64}, "in every round"


def test_what_disturbs_one_round_of_timing_pads_nothing() -> None:
    """As on a GPU that others use too: a run had padded all its steps to 1,024 rows."""
    counts = RowCounts(None, torch.device("cuda"), max_rows=64, invariant=False)
    counts.sizes, calls = [16, 32, 64], list[int]()

    def seconds(size: int) -> float:
        calls.append(size)
        busy = 5.0 if len(calls) <= 2 or 5 <= len(calls) <= 7 else 1.0
        return busy * (1 + size / 1000)

    counts.time(seconds)
    assert [counts.padded(rows) for rows in (3, 17, 33)] == [16, 32, 64]
    assert counts.seconds(20) == pytest.approx(1.032)


@pytest.mark.skipif(torch.cuda.is_available(), reason="takes sizes to agree that do on a CPU")
def test_a_timed_size_is_used_and_moves_no_digit(make_policies, monkeypatch) -> None:
    """As on a GPU, with a timer that finds 8 rows slower than 32."""
    policies = make_policies("lora", ("main", "rival"))
    plain = asyncio.run(talk(TransformersEngine(policies), 2, ("main", "rival")))
    engine = TransformersEngine(policies, max_batch=40)
    runner, sizes, timed = runner_of(engine), list[int](), list[int]()
    runner._counts.find()  # whose products rows are computed by, on this processor
    runner._counts.forget()

    def find(self: RowCounts) -> None:  # a GPU's sizes, all of which agree here
        self.sizes = [8, 16, 32, 64, 128]

    def time_step(self: Runner, rows: int) -> float:
        timed.append(rows)
        return {8: 4.0, 16: 3.0, 32: 2.0, 64: 2.5}[rows]

    monkeypatch.setattr(RowCounts, "find", find)
    monkeypatch.setattr(Runner, "_time_step", time_step)
    step = runner._step_of
    monkeypatch.setattr(runner, "_step_of", lambda size, far: sizes.append(size) or step(size, far))
    assert digits(asyncio.run(talk(engine, 2, ("main", "rival")))) == digits(plain)
    assert set(sizes) == {32} and timed == [64, 32, 16, 8] * 6, "once, and none that cannot be met"
