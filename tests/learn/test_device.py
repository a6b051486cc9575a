"""TF32 is switched on where it is asked for and the GPU has it, and nowhere else."""

import pytest
import torch

from sparring.models.device import use_tf32


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
