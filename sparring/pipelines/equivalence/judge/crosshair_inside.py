"""Runs inside the jail, as a whole program: lets CrossHair look for an input that tells two
functions apart, and prints what it found. It imports nothing of Sparring."""

import importlib.util
import json
import os
import sys
import types
from collections import Counter
from typing import Any


def module(name: str, source: str) -> types.ModuleType:
    """CrossHair reads sources from files, so they are given one."""
    path = f"/tmp/{name}_{os.getpid()}.py"
    with open(path, "w") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def search(request: dict[str, Any]) -> tuple[str, str]:
    from crosshair.core_and_libs import standalone_statespace  # noqa: F401  registers types
    from crosshair.diff_behavior import ExceptionEquivalenceType, diff_behavior
    from crosshair.fnutil import FunctionInfo
    from crosshair.options import DEFAULT_OPTIONS, AnalysisOptionSet

    found = []
    for name in ("p", "q"):
        made = module(name, request[name])
        found.append(FunctionInfo.from_module(made, request["function"]))
    unsure: list[bool] = []
    options = DEFAULT_OPTIONS.overlay(
        AnalysisOptionSet(per_condition_timeout=request["seconds"], per_path_timeout=2.0)
    )
    options.stats = Counter()
    diffs = diff_behavior(
        found[0],
        found[1],
        options,
        exception_equivalence=ExceptionEquivalenceType.SAME_TYPE,
        on_nondeterminism=lambda: unsure.append(True),
    )
    if isinstance(diffs, str):
        return "not refuted", f"CrossHair: {diffs}"
    if diffs:
        return "counterexample", f"[{', '.join(diffs[0].args.values())}]"
    if options.stats["exhaustion"] > 0 and not unsure:
        return "exhausted", ""
    return "not refuted", f"CrossHair found nothing in {request['seconds']:g} s"


def main() -> None:
    request = json.loads(sys.stdin.read())
    try:
        kind, detail = search(request)
    except Exception as error:
        kind, detail = "not refuted", f"CrossHair failed: {type(error).__name__}: {error!s:.200}"
    print()
    print(json.dumps({"kind": kind, "detail": detail}))


main()
