"""TF32 is switched on where it is asked for and the GPU has it, and nowhere else."""

import pytest
import torch

from sparring.models.device import dtype_runs, use_tf32


@pytest.fixture(autouse=True)
def _as_it_was():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("wanted", "device", "capability", "expected"),
    [
        (True, "cuda", (9, 0), "high"),
        (True, "cuda:1", (8, 0), "high"),
        (True, "cuda", (7, 0), "highest"),  # a V100 has none
        (False, "cuda", (9, 0), "highest"),
        (True, "cpu", None, "highest"),
    ],
)
def test_the_flag(wanted, device, capability, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert use_tf32(wanted, device) is (expected == "high")
    assert torch.get_float32_matmul_precision() == expected


def test_dtypes_are_tried_apart_and_all_that_work_are_named() -> None:
    assert dtype_runs("float32", "cpu")
    assert not dtype_runs("float32", "nowhere")
    a = torch.ones(64, 64, dtype=torch.float16)
    assert dtype_runs("float16", "cpu") == bool((a @ a == 64).all())
