"""How Liquid Haskell is found, jailed, limited and run several times at once; none of it needs the
tool itself."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Task, Verdict
from sparring.pipelines.equivalence.judge import haskell_jail, liquid_tool
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker
from sparring.pipelines.equivalence.judge.liquid_tool import COMMAND, LiquidHaskell

needs_ghc = pytest.mark.skipif(
    not haskell_jail.probe().ok,
    reason=f"{haskell_jail.probe().explanation}: {haskell_jail.probe().install}",
)
SAFE = "**** LIQUID: SAFE (2 constraints checked) ****\n"


def test_the_command_line_is_the_given_one_or_one_that_hides_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND, "my-ghc -package-db '/a b' -fplugin=LiquidHaskell")
    assert liquid_tool.command() == ["my-ghc", "-package-db", "/a b", "-fplugin=LiquidHaskell"]
    monkeypatch.delenv(COMMAND)
    monkeypatch.setenv("HOME", str(tmp_path))
    database = tmp_path / ".cabal" / "store" / "ghc-9.0.2" / "package.db"
    database.mkdir(parents=True)
    assert "-package-db" not in liquid_tool.command()
    (database / "liquidhaskell-0.9.0.2.1-abc.conf").write_text("name: liquidhaskell\n")
    words = liquid_tool.command()
    assert words[words.index("-package-db") + 1] == str(database)
    assert words[words.index("-hide-package") + 1] == "base"
    packages = [words[n + 1] for n, word in enumerate(words) if word == "-package"]
    assert packages == ["liquid-base", "liquid-prelude", "liquidhaskell"]


def test_the_jail_is_shown_the_databases_and_what_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    database, libraries = tmp_path / "db", tmp_path / "lib" / "liquid"
    for folder in (database, libraries):
        folder.mkdir(parents=True)
    (database / "one.conf").write_text(f"library-dirs: {libraries}\nhaddock: /nowhere/at/all\n")
    assert liquid_tool.folders(["ghc", "-package-db", str(database)]) == [database, libraries]
    environment = tmp_path / "liquid.env"
    environment.write_text(f"clear-package-db\nglobal-package-db\npackage-db {database}\n")
    found = liquid_tool.folders(["ghc", "-package-env", str(environment)])
    assert found == [database, libraries, environment]


@needs_ghc
def test_the_jail_has_of_proc_nothing_but_the_link_to_ghc(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    async def go(own_link: bool) -> str:
        words = ["/bin/sh", "-c", "ls /proc; ls /proc/self; readlink /proc/self/exe"]
        async with haskell_jail.process(
            words, tmp_path, sandbox="bubblewrap", own_link=own_link
        ) as running:
            return (await running.communicate())[0].decode()

    assert asyncio.run(go(True)).split() == ["self", "exe", str(haskell_jail.own_binary())]
    assert "self" not in asyncio.run(go(False)).split()


@pytest.mark.parametrize("words", [sign for sign, _ in liquid_tool.SIGNS])
def test_a_tool_that_never_checks_anything_is_missing_and_not_an_answer(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(self: LiquidHaskell, text: str) -> tuple[int, str]:
        return 1, f"error: {words}"

    monkeypatch.setattr(LiquidHaskell, "_run", run)
    monkeypatch.setattr(LiquidHaskell, "absent", lambda self: "")
    verdict = asyncio.run(LiquidHaskell().prove("module X where"))
    assert (verdict.status, verdict.kind) == (
        "void",
        "liquid",
    ) and "docs/haskell.md" in verdict.detail


def test_as_many_at_once_as_there_are_cores_and_one_that_hangs_holds_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most = 0, 0

    async def go() -> list[Verdict]:
        release = asyncio.Event()

        async def run(self: LiquidHaskell, text: str) -> tuple[int, str]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await (release.wait() if text == "hangs" else asyncio.sleep(0))
            running -= 1
            return 0, SAFE

        monkeypatch.setattr(LiquidHaskell, "_run", run)
        monkeypatch.setattr(LiquidHaskell, "absent", lambda self: "")
        tool = LiquidHaskell(at_once=2)
        hanging = asyncio.create_task(tool.prove("hangs"))
        done = await asyncio.gather(*(tool.prove("fine") for _ in range(8)))
        assert not hanging.done()
        release.set()
        return [*done, await hanging]

    assert all(verdict.passed for verdict in asyncio.run(go())) and most == 2
    assert liquid_tool.workers() >= 1


def test_z3_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("z3") is None:
        pytest.skip("z3 is not installed")
    hard = """(declare-const x (_ BitVec 96)) (declare-const y (_ BitVec 96))
    (assert (= (bvmul x y) #x0123456789abcdef01234567))
    (assert (bvugt x #x000000000001000000000001))
    (assert (bvugt y #x000000000001000000000001)) (assert (bvult x y)) (check-sat)"""
    monkeypatch.setattr(liquid_tool, "Z3_WORK", 10_000)
    liquid_tool._limited_z3(tmp_path)
    asked = [str(tmp_path / "bin" / "z3"), "-smt2", "-in"]
    done = subprocess.run(
        asked, input=hard, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["unknown"]
    easy = subprocess.run(
        asked, input="(check-sat)", capture_output=True, text=True, timeout=120, check=False
    )
    assert easy.stdout.split() == ["sat"]


class Says:
    """A prover that takes everything for proved, or nothing, or is not there."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def prove(self, text: str) -> Verdict:
        return self.verdict


@needs_ghc
@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        (Verdict("pass", "proved"), "x + x == 3 * x was not refused"),
        (Verdict("fail", "unproved", "never"), "x + x == 2 * x could not be proved"),
        (Verdict("void", "liquid", "no z3"), "could not be proved (liquid): no z3"),
    ],
)
def test_a_prover_is_tried_on_a_truth_and_a_falsehood(verdict: Verdict, wrong: str) -> None:
    async def go() -> str:
        async with HaskellChecker(prover=Says(verdict)) as checker:
            return await checker.self_check()

    assert wrong in asyncio.run(go())


@needs_ghc
def test_a_run_that_asks_for_proofs_does_not_begin_without_the_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparring.pipelines.equivalence.programs import need_proofs

    tasks = [
        Task("provable", data={"code": "f :: Integer -> Integer\nf x = x + 1\n"}),
        Task("not", data={"code": "f :: Double -> Double\nf x = x + 1\n"}),
    ]
    monkeypatch.setenv(COMMAND, "ghc -fplugin=NothingOfTheKind")
    with pytest.raises(ConfigError, match=r"(?s)could not be proved.*docs/haskell.md"):
        need_proofs(tasks, "bubblewrap")

    async def fine(self: HaskellChecker) -> str:
        return ""

    monkeypatch.setattr(HaskellChecker, "self_check", fine)
    assert need_proofs(tasks, "bubblewrap") == {"provable"}
    said = capsys.readouterr().err
    assert "1 of 2 programs can be proved about; only these are played" in said
    with pytest.raises(ConfigError, match="0 of 1 programs"):
        need_proofs(tasks[1:], "bubblewrap")
