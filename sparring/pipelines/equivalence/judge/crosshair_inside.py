"""Runs inside the jail, as a whole program: lets CrossHair look for an input that tells two
functions apart, and prints the result. Its budget is paths, decisions and z3's own count of work,
which are the same on any machine. It imports nothing of Sparring."""

import importlib.util
import itertools
import json
import os
import signal
import sys
import types
from collections import Counter
from typing import Any

PER_S = 100  # decisions that stand for a second of CrossHair's limits, which it extends by seconds
PATH = 200  # decisions of one path
MEAN = 15  # decisions of all paths together, for each path of the budget
Z3_WORK = 500_000  # of one question to z3, in its own units
CPU_S = 30  # a path that decides nothing, such as a long loop over known numbers, ends by this


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
    os.environ["CROSSHAIR_SMT_RLIMIT"] = str(Z3_WORK)  # read when crosshair is imported
    from crosshair import core, statespace
    from crosshair.core_and_libs import standalone_statespace  # noqa: F401  registers types
    from crosshair.diff_behavior import ExceptionEquivalenceType, diff_behavior_with_signature
    from crosshair.fnutil import FunctionInfo
    from crosshair.options import DEFAULT_OPTIONS, AnalysisOptionSet

    # CrossHair looks at its clock once per path and once per new decision, so a clock that counts
    # how often it is looked at makes its time limits limits of decisions.
    decisions = itertools.count()
    core.process_time = statespace.process_time = lambda: next(decisions) / PER_S
    functions = [
        FunctionInfo.from_module(module(name, request[name]), request["function"]).callable()
        for name in ("p", "q")
    ]
    paths = request["paths"] // 2  # P runs before Q in the first half, and after it in the second
    options = DEFAULT_OPTIONS.overlay(
        AnalysisOptionSet(
            max_iterations=paths,
            per_condition_timeout=(PATH + MEAN * paths) / PER_S,
            per_path_timeout=PATH / PER_S,
        )
    )
    options.stats = Counter()
    unsure: list[bool] = []
    for (first, signature), (second, _) in (functions, functions[::-1]):
        diffs = diff_behavior_with_signature(
            first,
            second,
            signature,
            options,
            ExceptionEquivalenceType.SAME_TYPE,
            on_nondeterminism=lambda: unsure.append(True),
        )
        for diff in diffs:
            return "counterexample", f"[{', '.join(diff.args.values())}]"
        if options.stats["exhaustion"] > 0 and not unsure:
            return "exhausted", ""
    return "not refuted", f"CrossHair found nothing in {options.stats['num_paths']} paths"


def main() -> None:
    def out_of_time(*_: Any) -> None:
        answer("not refuted", f"CrossHair stopped after {CPU_S} s of processor time")
        os._exit(0)

    signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    request = json.loads(sys.stdin.read())
    try:
        answer(*search(request))
    except Exception as error:
        answer("not refuted", f"CrossHair failed: {type(error).__name__}: {error!s:.200}")


def answer(kind: str, detail: str) -> None:
    line = json.dumps({"kind": kind, "detail": detail})
    os.write(1, f"\n{line}\n".encode())


main()
