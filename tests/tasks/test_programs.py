"""Programs as data sets have them: which function is meant, and what of the rest is kept."""

import logging

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.pipelines.equivalence.judge.haskell import read
from sparring.pipelines.equivalence.judge.signature import BadSignature
from sparring.pipelines.equivalence.programs import program_of, unusable
from sparring.run.config import make_config
from sparring.run.games import load_game
from sparring.training.requirements import tasks_of

WITH_MAIN = """module Main where

import qualified Data.Map as Map
import System.IO (hSetBuffering, stdout, BufferMode(..))
import Text.Printf

-- | How often each word is there.
counts :: [String] -> Map.Map String Int
counts = foldr (\\w -> Map.insertWith (+) w 1) Map.empty

commonest :: [String] -> Maybe String
commonest ws
  | null ws = Nothing
  | otherwise = Just (fst (best (Map.toList (counts ws))))

best :: [(String, Int)] -> (String, Int)
best = foldr1 (\\a b -> if snd a >= snd b then a else b)

report :: [String] -> IO ()
report ws = print (commonest ws)

main :: IO ()
main = do
  hSetBuffering stdout NoBuffering
  report ["a", "b", "a"]
"""
PLAIN = "double :: Integer -> Integer\ndouble x = x + x\n"
EVEN_ODD = """isEven' :: Integer -> Bool
isEven' 0 = True
isEven' n = isOdd' (n - 1)

isOdd' :: Integer -> Bool
isOdd' 0 = False
isOdd' n = isEven' (n - 1)
"""


def task(code: str, **more: str) -> Task:
    return Task("t", "equivalence", {"code": code, **more})


def test_the_root_of_the_call_graph_is_meant_and_what_acts_is_left_out():
    function, code = program_of(task(WITH_MAIN), "haskell")
    assert function == "commonest"
    assert "counts ::" in code and "best ::" in code
    assert "main" not in code and "report" not in code and "System.IO" not in code
    program = read(code, function, "P")  # what the judge takes
    assert program.functions == ["counts", "commonest", "best"]
    assert not unusable(task(WITH_MAIN), "haskell")


def test_a_program_that_needs_nothing_left_out_stays_as_it_is():
    assert program_of(task(PLAIN), "haskell") == ("double", PLAIN)
    with_helper = PLAIN + "quadruple :: Integer -> Integer\nquadruple = double . double\n"
    assert program_of(task(with_helper), "haskell") == ("quadruple", with_helper)


def test_a_name_beside_the_program_wins():
    assert program_of(task(WITH_MAIN, function="best"), "haskell")[0] == "best"
    assert "counts" not in program_of(task(WITH_MAIN, function="best"), "haskell")[1]
    with pytest.raises(BadSignature, match="no function nowhere"):
        program_of(task(WITH_MAIN, function="nowhere"), "haskell")


@pytest.mark.parametrize(
    ("code", "function"),
    [
        (EVEN_ODD, "isEven'"),  # each calls the other: the first signature
        ("b :: Int -> Int\nb x = x\n\na :: Int -> Int\na x = x\n", "b"),  # nobody calls anybody
        # What `main` shows is meant, though another root stands before it.
        ("b :: Int -> Int\nb x = x\n\na :: Int -> Int\na x = x\n\nmain :: IO ()\nmain = print (a 1)"
         "\n", "a"),
        # A root that takes a function cannot be compared; what it calls can.
        ("twice :: (Int -> Int) -> Int -> Int\ntwice f = f . f . inc\n\ninc :: Int -> Int\n"
         "inc x = x + 1\n", "inc"),
        ("f, g :: Int -> Int\nf x = x\ng x = f x\n\nmain :: IO ()\nmain = print 1\n", "g"),
    ],
)  # fmt: skip
def test_where_the_root_is_not_plain(code, function):
    name, kept = program_of(task(code), "haskell")
    assert name == function
    read(kept, name, "P")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('main :: IO ()\nmain = putStrLn "hello"\n', "IO"),
        ("f x = x + 1\n", "type"),
        ("import Data.IORef (newIORef)\nf :: Int -> Int\nf x = g (newIORef x)\n", "forbidden"),
        ("f :: Int -> Int\nf x = {- no end", "syntax"),
    ],
)
def test_what_cannot_be_used_says_why(code, kind):
    assert unusable(task(code), "haskell").startswith(f"{kind}: ")


def test_pragmas_for_the_compiler_do_not_count_against_a_program():
    code = "{-# OPTIONS_GHC -Wall #-}\n{-# LANGUAGE TupleSections #-}\n" + PLAIN
    function, kept = program_of(task(code), "haskell")
    assert function == "double" and "OPTIONS" not in kept and "TupleSections" in kept


def test_a_fenced_program_is_taken_out_of_its_fence():
    assert program_of(task(f"Here it is:\n```haskell\n{PLAIN}```\n"), "haskell")[1] == PLAIN


def test_python_has_a_root_too():
    code = (
        "def half(n: int) -> int:\n    return n // 2\n\ndef g(n: int) -> int:\n    return half(n)\n"
    )
    assert program_of(task(code), "python") == ("g", code)
    assert unusable(task("def f(n): return n"), "python").startswith("type: ")
    assert not unusable(task(code), "python")


def test_a_run_says_how_many_programs_of_a_source_it_can_use(tmp_path, caplog):
    import json

    source = tmp_path / "programs.jsonl"
    rows = [{"code": PLAIN}, {"code": WITH_MAIN}, {"code": "main :: IO ()\nmain = print 1\n"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    games = {"equivalence": load_game("equivalence", language="haskell", prove=False)}
    config = make_config({"tasks": {"source": str(source)}})
    with caplog.at_level(logging.INFO):
        tasks = tasks_of(config, games)["equivalence"]
    assert [t.id for t in tasks] == ["0", "1"]
    [line] = [r.getMessage() for r in caplog.records]
    assert "2 of 3 can be used; left out: IO 1" in line and str(source) in line
    source.write_text(json.dumps(rows[2]) + "\n")
    with pytest.raises(ConfigError, match="0 of 1 can be used"):
        tasks_of(config, games)
