"""Tests that only define theirs, which a runner would find, and those that have a runner of
unittest's run them, which prints what failed and raises nothing."""

from __future__ import annotations

import importlib
import sys
import types
from contextlib import suppress
from typing import Any

from .back import TESTS
from .remote import Proxy


def own(names: dict[str, Any]) -> dict[str, Any]:
    """Without the program's: even whether one of them is a class would be a question to it."""
    return {name: value for name, value in names.items() if type(value) is not Proxy}


def watched(names: dict[str, Any]) -> list[BaseException]:
    """What runners of unittest's find wrong from now on; `unittest.main()` finds the tests."""
    unittest: Any = importlib.import_module("unittest")
    module = types.ModuleType(TESTS)
    raised: list[BaseException] = []
    wrong: list[BaseException] = []
    run, main = unittest.TextTestRunner.run, unittest.main

    def noting(method: Any) -> Any:
        def add(*args: Any) -> Any:
            if args[-1] is not None:  # a subtest that holds
                raised.append(args[-1][1])
            return method(*args)

        return add

    def kept(self: Any, test: Any) -> Any:
        raised.clear()
        result = run(self, test)
        wrong.extend(raised)
        wrong.extend(AssertionError(f"{case} succeeds") for case in result.unexpectedSuccesses)
        return result

    def of_the_tests(*args: Any, **options: Any) -> Any:
        vars(module).update(own(names))
        return main(**{"argv": [TESTS], **options, "module": module, "exit": False})

    for name in ("addError", "addFailure", "addSubTest"):
        setattr(unittest.TestResult, name, noting(getattr(unittest.TestResult, name)))
    unittest.TextTestRunner.run, unittest.main = kept, of_the_tests
    return wrong


def run_defined(names: dict[str, Any]) -> None:
    """Functions called `test…` that take nothing, the methods `test…` of classes called `Test…`,
    and the cases of unittest."""
    unittest: Any = sys.modules.get("unittest")
    for name, value in own(names).items():
        if name.startswith("test") and type(value) is types.FunctionType:
            if not value.__code__.co_argcount:
                _run(value)
        elif unittest and isinstance(value, type) and issubclass(value, unittest.TestCase):
            getattr(value, "setUpClass", lambda: None)()
            for case in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                with suppress(unittest.SkipTest):
                    case.debug()
        elif isinstance(value, type) and name.startswith("Test") and value.__module__ == TESTS:
            for method in [method for method in dir(value) if method.startswith("test")]:
                function = getattr(value, method)
                if type(function) is types.FunctionType and function.__code__.co_argcount < 2:
                    case = value()
                    test, setup = getattr(case, method), getattr(value, "setup_method", None)
                    if setup:  # which may want to know for what
                        setup(*[case, test][: setup.__code__.co_argcount])
                    _run(test)


def _run(test: Any) -> None:
    made = test()
    if type(made) is types.CoroutineType:
        importlib.import_module("asyncio").run(made)
