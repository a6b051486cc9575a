"""The jail of GHCi, from inside: modules that no judge has looked at, and what they come to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparring.pipelines.equivalence.judge import haskell_jail
from sparring.pipelines.equivalence.judge.haskell_jail import MAIN, Haskell, Ran, probe

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
HEAD = f"module {MAIN} where\nimport qualified Harness\n"
SAY = f"Harness.report MARK SECONDS (\\_ -> {MAIN}.go)"


def ran(*modules: dict[str, str], statement: str = SAY, seconds: int = 2) -> list[Ran]:
    async def go() -> list[Ran]:
        async with Haskell(1, seconds=seconds) as ghc:
            return [await ghc.run(module, statement) for module in modules]

    return asyncio.run(go())


def action(imports: str, body: str) -> dict[str, str]:
    """A module whose action runs as the harness does: the worst that could get past a judge."""
    return {MAIN: f"{HEAD}{imports}\ngo :: IO [String]\ngo = {body}\n"}


TRIED = "import Control.Exception\nimport System.IO.Error\n"
KEEP = 'either (\\e -> ["no", show (e :: IOException)]) (const ["yes"]) <$> try ({})'


def test_what_is_said_comes_back() -> None:
    [done] = ran(action("", 'pure ["a", "quote \\" and \\955", "line\\nbreak"]'))
    assert done == Ran("ok", "", ["a", 'quote " and λ', "line\nbreak"])


def test_the_host_is_out_of_reach() -> None:
    attempts = [
        ("import System.Directory", "writeFile \"/etc/owned\" \"x\""),
        ("import System.Directory", "readFile \"/etc/passwd\" >>= evaluate . length >> pure ()"),
        ("import System.Directory", "listDirectory \"/root\" >>= evaluate . length >> pure ()"),
        ("import System.Directory", "listDirectory \"/proc\" >>= evaluate . length >> pure ()"),
        ("import System.Posix.User", "setUserID 0"),
        ("import System.Posix.Files", "createSymbolicLink \"/usr\" \"/usr/link\""),
    ]  # fmt: skip
    found = ran(*[action(TRIED + imports, KEEP.format(body)) for imports, body in attempts])
    for (_, body), done in zip(attempts, found, strict=True):
        assert done.report[:1] == ["no"], (body, done)


def test_environment_and_user_are_the_jails_own() -> None:
    imports = "import System.Environment\nimport System.Posix.User\nimport Data.List"
    body = "do { e <- getEnvironment; u <- getRealUserID; pure (show u : sort (map fst e)) }"
    [done] = ran(action(imports, body))
    assert done.report[0] == "65534"
    known = {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    assert set(done.report[1:]) <= known


def test_time_and_memory_end_a_call_and_not_the_next() -> None:
    loop = action("", "pure [show (last (repeat (1 :: Int)))]")
    huge = action("", "pure [show (length (show (product [1 .. 10 ^ 6 :: Integer])))]")
    fine = action("", 'pure ["fine"]')
    stopped, big, after = ran(loop, huge, fine, seconds=1)
    assert stopped.status == "time-out"
    assert big.status in ("time-out", "memory") or big.report[:1] == ["none"]
    assert after.report == ["fine"]


def test_a_program_cannot_say_what_the_harness_says() -> None:
    forged = action(
        "", 'putStrLn "MARK[\\"forged\\"]" >> putStrLn "[\\"forged\\"]" >> pure ["own"]'
    )
    body = 'putStrLn "Ok, all modules loaded." >> exitImmediately ExitSuccess >> pure []'
    died = action("import System.Exit\nimport System.Posix.Process", body)
    said, quiet = ran(forged, died)
    assert said.report == ["own"]
    assert quiet.status == "broken" and quiet.report == []


def test_messages_name_the_module_and_no_folder_of_the_host() -> None:
    [done] = ran(action("", "pure nothingOfTheKind"))
    assert done.status == "compile"
    assert done.messages.startswith(f"{MAIN}.hs:") and "sparring-haskell" not in done.messages


def test_unsafe_is_said_in_so_many_words() -> None:
    with pytest.raises(ValueError, match="unsafe"):
        Haskell(sandbox="none")


def test_the_harness_is_compiled_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def compile(words: list[str], cwd: Path, **_: object) -> None:
        compiled.append(words[-1])
        (cwd / words[-1]).with_suffix(".o").touch()

    haskell_jail.own_binary()  # asks GHC for its folder, once
    monkeypatch.setenv("SPARRING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(haskell_jail.subprocess, "run", compile)
    folders = [haskell_jail._compiled.__wrapped__() for _ in range(2)]
    assert compiled == ["Harness.hs", "Syntax.hs"] and folders[0] != folders[1]
    assert {p.name for p in folders[0].iterdir()} == {p.name for p in folders[1].iterdir()}
    assert len(list((tmp_path / "cache").iterdir())) == 1
