"""The jail: untrusted programs run here, and only plain data comes out."""

from __future__ import annotations

from sparring.judge.sandbox.bwrap import Probe, SandboxMissing, probe
from sparring.judge.sandbox.pool import Execution, Limits, Pool

__all__ = ["Execution", "Limits", "Pool", "Probe", "SandboxMissing", "probe"]
