"""Proofs that somebody might hand in: honest ones, wrong ones, and ones that cheat.

`tool`: what stands in the way. "" is nothing of ours (Liquid Haskell decides), "ghc" the stand-in
module that GHC alone compiles, and any other text is in the whitelist's refusal.
"""

from __future__ import annotations

from typing import NamedTuple


class Proof(NamedTuple):
    name: str
    p: str
    q: str
    proof: str
    tool: str
    function: str = "f"


def integer(body: str) -> str:
    return f"f :: Integer -> Integer\nf {body}\n"


DOUBLE = integer("x = x + x")
TWICE = integer("x = 2 * x")
TRIPLE = integer("x = 3 * x")
LIST = "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = x + f xs\n"
FOLD = """f :: [Integer] -> Integer
f xs = go 0 xs
go :: Integer -> [Integer] -> Integer
go acc [] = acc
go acc (x:xs) = go (acc + x) xs
"""
FOLD_PROOF = """{-@ goLemma :: acc:Integer -> xs:[Integer] -> { go acc xs == acc + fP xs } @-}
goLemma :: Integer -> [Integer] -> Proof
goLemma _ [] = trivial
goLemma acc (x:xs) = goLemma (acc + x) xs

lemma xs = goLemma 0 xs
"""
TREE = """data Tree = Leaf | Node Tree Integer Tree
f :: Tree -> Tree
f t = mirror (mirror t)
mirror :: Tree -> Tree
mirror Leaf = Leaf
mirror (Node l x r) = Node (mirror r) x (mirror l)
"""
SAME_TREE = "data Tree = Leaf | Node Tree Integer Tree\nf :: Tree -> Tree\nf t = t\n"
SIGN = "f :: Integer -> Integer\nf x | x > 0 = 1\n    | x < 0 = -1\n    | otherwise = 0\n"
SIGN_IF = "f :: Integer -> Integer\nf x = if x == 0 then 0 else if x > 0 then 1 else -1\n"
AND = "f :: Bool -> Bool -> Bool\nf a b = a && b\n"
AND_IF = "f :: Bool -> Bool -> Bool\nf a b = if a then b else False\n"
MAYBE = "f :: Maybe Integer -> Integer\nf m = case m of\n  Nothing -> 0\n  Just x -> x\n"
MAYBE_2 = "f :: Maybe Integer -> Integer\nf Nothing = 0\nf (Just x) = 0 + x\n"
HALF = integer("x = x `div` 2")
OPERATOR = """f :: [a] -> [a] -> [a]
f xs ys = xs +++ ys
(+++) :: [a] -> [a] -> [a]
[] +++ ys = ys
(x:xs) +++ ys = x : (xs +++ ys)
"""
APPEND = "f :: [a] -> [a] -> [a]\nf [] ys = ys\nf (x:xs) ys = x : f xs ys\n"
INT_ABS = "f :: Int -> Int\nf x = if x < 0 then negate x else x\n"
INT_ABS_2 = "f :: Int -> Int\nf x | x >= 0 = x\n    | otherwise = negate x\n"

HONEST = [
    Proof("trivial", DOUBLE, TWICE, "lemma _ = trivial", ""),
    Proof("named argument", DOUBLE, TWICE, "lemma x = trivial", ""),
    Proof(
        "equational",
        DOUBLE,
        TWICE,
        "lemma x\n  = fP x\n  === x + x\n  === 2 * x\n  === fQ x\n  *** QED",
        "",
    ),
    Proof(
        "own statement repeated",
        DOUBLE,
        TWICE,
        "{-@ lemma :: n:Integer -> { fP n == fQ n } @-}\nlemma :: Integer -> Proof\n"
        "lemma _ = trivial",
        "",
    ),
    Proof("induction with a helper", LIST, FOLD, FOLD_PROOF, ""),
    Proof(
        "tree", TREE, SAME_TREE, "lemma Leaf = trivial\nlemma (Node l _ r) = lemma l ? lemma r", ""
    ),
    Proof(
        "guards",
        SIGN,
        SIGN_IF,
        "lemma x | x > 0 = trivial\n        | x < 0 = trivial\n        | otherwise = trivial",
        "",
    ),
    Proof("booleans", AND, AND_IF, "lemma _ _ = trivial", ""),
    Proof(
        "cases",
        MAYBE,
        MAYBE_2,
        "lemma m = case m of\n  Nothing -> trivial\n  Just x -> trivial",
        "",
    ),
    Proof("if", SIGN, SIGN_IF, "lemma x = if x > 0 then trivial else trivial", ""),
    Proof(
        "half of an even number",
        integer("x = (2 * x) `div` 2"),
        integer("x = x"),
        "lemma _ = trivial",
        "",
    ),
    Proof("operator", OPERATOR, APPEND, "lemma [] _ = trivial\nlemma (_:xs) ys = lemma xs ys", ""),
    Proof("Int compared as it came", INT_ABS, INT_ABS_2, "lemma x = trivial", ""),
    Proof(
        "sum of Int",
        LIST.replace("Integer", "Int"),
        FOLD.replace("Integer", "Int"),
        FOLD_PROOF.replace("Integer", "Int"),
        "",
    ),
    Proof(
        "helper with a precondition",
        DOUBLE,
        TWICE,
        "{-@ small :: n:{v:Integer | v > 3} -> { n + n > 6 } @-}\nsmall :: Integer -> Proof\n"
        "small _ = trivial\nlemma _ = trivial",
        "",
    ),
    Proof(
        "what grows smaller",
        LIST,
        FOLD,
        FOLD_PROOF.replace("fP xs } @-}", "fP xs } / [len xs] @-}"),
        "",
    ),
    Proof("division by name", integer("x = div x 2"), HALF, "lemma _ = trivial", ""),
    Proof("comments", DOUBLE, TWICE, "-- by arithmetic\nlemma _ = trivial {- undefined -}", ""),
]

WRONG = [
    Proof("false", DOUBLE, TRIPLE, "lemma _ = trivial", ""),
    Proof("no induction", LIST, FOLD, "lemma _ = trivial", ""),
    Proof("circular", DOUBLE, TRIPLE, "lemma x = lemma x", "not seen that lemma ends"),
    Proof("a case is missing", LIST, FOLD, "lemma [] = trivial", "ghc"),
    Proof(
        "out of scope", DOUBLE, TWICE, "lemma x = trivial ? nothingOfTheKind x", "nothingOfTheKind"
    ),
    Proof("a type error", DOUBLE, TWICE, "lemma x = trivial ? fP True", "ghc"),
    Proof("too many arguments", DOUBLE, TWICE, "lemma x y = trivial", "ghc"),
    Proof("no lemma", DOUBLE, TWICE, "other _ = trivial", "no equations"),
    Proof("empty", DOUBLE, TWICE, "   ", "no proof"),
    Proof(
        "a helper without a statement",
        DOUBLE,
        TWICE,
        "helper :: Integer -> Proof\nhelper _ = trivial\nlemma x = helper x",
        "helper",
    ),
    Proof(
        "a helper without a type",
        DOUBLE,
        TWICE,
        "{-@ helper :: x:Integer -> { fP x == fQ x } @-}\nhelper _ = trivial\nlemma x = helper x",
        "needs a type",
    ),
    Proof("not Haskell", DOUBLE, TWICE, "lemma x = = trivial", "ghc"),
    Proof("an unknown character", DOUBLE, TWICE, "lemma x = trivial ∎", "not understood"),
]


def cheat(name: str, proof: str, tool: str, p: str = DOUBLE, q: str = TRIPLE) -> Proof:
    return Proof(name, p, q, proof, tool)


def annotated(annotation: str, body: str = "lemma _ = trivial") -> str:
    return f"{{-@ {annotation} @-}}\n{body}\n"


ALIKE = "data T = A | B\ninstance Eq T where\n  _ == _ = True\n"
STATED = "x:Integer -> { fP x == fQ x }"
CHEATS = [
    cheat("undefined", "lemma _ = undefined", "undefined"),
    cheat("undefined behind ?", "lemma x = trivial ? undefined", "undefined"),
    cheat("undefined made a variable", "lemma undefined = undefined", "ghc"),
    cheat(
        "undefined bound elsewhere",
        "lemma x = (case x of undefined -> trivial) ? undefined",
        "undefined is not among",
    ),
    cheat("error", 'lemma _ = error "believe me"', "error"),
    cheat("Admit", "lemma x = fP x === fQ x *** Admit", "Admit"),
    cheat("unreachable", "lemma _ = unreachable", "unreachable"),
    cheat("assumed equality", "lemma x = fP x ==! fQ x *** QED", "==!"),
    cheat("assume", annotated(f"assume lemma :: {STATED}"), "not allowed"),
    cheat(
        "assume a helper",
        annotated(
            f"assume ax :: {STATED}", "ax :: Integer -> Proof\nax _ = trivial\nlemma x = ax x"
        ),
        "not allowed",
    ),
    cheat("lazy", annotated("lazy lemma", "lemma x = lemma x"), "not allowed"),
    cheat("ignore", annotated("ignore lemma"), "not allowed"),
    cheat(
        "option",
        annotated('LIQUID "--no-termination-check"', "lemma x = lemma x"),
        "not allowed",
    ),
    cheat(
        "option abbreviated",
        annotated('LIQUID "--no-term"', "lemma x = lemma x"),
        "not allowed",
    ),
    cheat(
        "GHC option",
        "{-# OPTIONS_GHC -fplugin-opt=LiquidHaskell:--diff #-}\nlemma _ = trivial",
        "not allowed",
    ),
    cheat("template", "{-# LANGUAGE TemplateHaskell #-}\nlemma _ = trivial", "not allowed"),
    cheat("extension", "{-# LANGUAGE BangPatterns #-}\nlemma _ = trivial", "extensions"),
    cheat("import", "import Data.List\nlemma _ = trivial", "not allowed"),
    cheat(
        "unsafe import", "import Unsafe.Coerce\nlemma _ = unsafeCoerce ()", "may not be imported"
    ),
    cheat(
        "weaker statement",
        annotated("lemma :: x:{Integer | false} -> { fP x == fQ x }"),
        "false may not stand",
    ),
    cheat("another statement", annotated("lemma :: x:Integer -> { fP x == fP x }"), "not yours"),
    cheat("another type", "lemma :: Bool -> Proof\nlemma _ = trivial", "not yours"),
    cheat("statement for an import", annotated("div :: x:a -> y:a -> {v:a | false}"), "not yours"),
    cheat("qualified name", annotated("GHC.Real.gcd :: x:a -> y:a -> {v:a | false}"), "not yours"),
    cheat(
        "false result",
        annotated(
            "bad :: x:Integer -> {v:Proof | false}",
            "bad :: Integer -> Proof\nbad x = bad x\nlemma x = bad x",
        ),
        "may not stand",
    ),
    cheat("narrowed function", annotated("fQ :: n:Nat -> Integer"), "unfolded for all"),
    cheat(
        "narrowed helper",
        annotated("go :: acc:Nat -> [Integer] -> Integer"),
        "unfolded for all arguments",
        LIST,
        FOLD,
    ),
    cheat("type alias", annotated("type Integer = {v:Integer | v == 0}"), "not allowed"),
    cheat("measure", annotated("measure fQ :: Integer -> Integer"), "not allowed"),
    cheat("rewrite", annotated("rewriteWith lemma [lemma]"), "not allowed"),
    cheat(
        "reflected in the proof",
        annotated(
            "reflect bad", "bad :: Integer -> Integer\nbad x = 1 + bad x\nlemma x = trivial ? bad x"
        ),
        "not seen that bad ends",
    ),
    cheat("data", "data V = V (V -> Proof)\nlemma _ = trivial", "not allowed"),
    cheat("class", "class C a where\n  pf :: a -> Proof\nlemma _ = trivial", "not allowed"),
    cheat("where", "lemma x = v where v = v", "stands for something"),
    cheat("let", "lemma x = let v = v in v", "stands for something"),
    cheat("lambda", "lemma = \\x -> lemma x", "lambda"),
    cheat("dividing in sight of the proof", "lemma x = trivial ? (0 `div` 2)", "div"),
    cheat(
        "division in a statement",
        annotated(
            "h :: x:Integer -> { x `div` 2 == 0 }",
            "h :: Integer -> Proof\nh _ = trivial\nlemma x = h x",
        ),
        "may not stand",
    ),
    cheat(
        "mutual recursion",
        "{-@ other :: x:Integer -> { fP x == fQ x } @-}\n"
        "other :: Integer -> Proof\nother x = lemma x\nlemma x = other x",
        "by way of others",
    ),
    cheat("maximum of nothing", "lemma _ = maximum []", "maximum"),
    cheat("a typed expression", "lemma x = trivial ? (0 :: Integer)", "a type after"),
    cheat("seq", "lemma x = seq x trivial", "seq"),
    cheat(
        "recursion beside a division",
        "lemma _ = trivial",
        "recursive and divides",
        DOUBLE,
        "f :: Integer -> Integer\nf x = 3 * x\nbad :: Integer -> Integer\n"
        "bad x = if (0 `div` 2) == 0 then 1 + bad x else 0\n",
    ),
    cheat(
        "negative divisor",
        "lemma _ = trivial",
        "above 0",
        integer("x = x `div` (-2)"),
        integer("x = negate (x `div` 2)"),
    ),
    cheat(
        "zero divisor",
        "lemma _ = trivial",
        "above 0",
        integer("x = x `div` 0"),
        integer("x = x `div` 0"),
    ),
    cheat(
        "floating point",
        "lemma _ _ _ = trivial",
        "Double",
        "f :: Double -> Double -> Double -> Double\nf x y z = (x + y) + z\n",
        "f :: Double -> Double -> Double -> Double\nf x y z = x + (y + z)\n",
    ),
    cheat(
        "all numbers at once",
        "lemma _ = trivial",
        "Num",
        "f :: Num a => a -> a\nf x = x + x\n",
        "f :: Num a => a -> a\nf x = 2 * x\n",
    ),
    cheat(
        "overflow",
        "lemma _ = trivial",
        "wraps",
        "f :: Int -> Bool\nf x = x + 1 > x\n",
        "f :: Int -> Bool\nf x = True\n",
    ),
    cheat(
        "a number that has an inverse",
        "lemma _ = trivial",
        "wraps",
        "f :: Int -> Bool\nf x = x * 3 == 1\n",
        "f :: Int -> Bool\nf x = False\n",
    ),
    cheat(
        "own equality",
        "lemma _ = trivial",
        "instance",
        ALIKE + "f :: T -> Bool\nf x = x == A\n",
        ALIKE + "f :: T -> Bool\nf A = True\nf B = False\n",
    ),
    cheat(
        "a paradox in a type",
        "lemma _ = trivial",
        "data type",
        "data V = V (V -> Integer)\n" + DOUBLE,
        "data V = V (V -> Integer)\n" + TRIPLE,
    ),
    cheat(
        "own not",
        "lemma _ = trivial",
        "meaning already",
        DOUBLE,
        "not :: Bool -> Bool\nnot x = x\n" + TRIPLE,
    ),
    cheat(
        "own plus",
        "lemma _ = trivial",
        "meaning already",
        DOUBLE,
        "f :: Integer -> Integer\nf x = x + x\n(+) :: Integer -> Integer -> Integer\nx + y = x\n",
    ),
    cheat(
        "own combinator",
        "lemma _ = trivial",
        "meaning already",
        DOUBLE,
        "f :: Integer -> Integer\nf x = x\n(===) :: Integer -> Integer -> Integer\nx === y = y\n",
    ),
    cheat(
        "an annotation in a string",
        "lemma _ = trivial",
        "may stand here",
        'f :: Integer -> String\nf x = ""\n',
        'f :: Integer -> String\nf x = "{-@ ignore lemma @-}"\n',
    ),
    cheat(
        "two helpers of one name",
        "lemma _ = trivial",
        "one thing in P",
        "f :: Integer -> Integer\nf x = g x\ng :: Integer -> Integer\ng x = 2 * x\n",
        "f :: Integer -> Integer\nf x = g x\ng :: Integer -> Integer\ng x = 3 * x\n",
    ),
    cheat(
        "the other's name",
        "lemma _ = trivial",
        "name of something else",
        DOUBLE,
        "f :: Integer -> Integer\nf x = fP x\nfP :: Integer -> Integer\nfP x = x\n",
    ),
]
OPERATOR_NAMED = "(+++) :: Integer -> Integer\n(+++) x = x\n"
PROOFS = [*HONEST, *WRONG, *CHEATS]
