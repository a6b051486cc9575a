# ruff: noqa: E501  (programs as they are handed in, on lines of their own)
"""False equivalences with proofs that want to be believed, made by rule: honest pairs with one thing
changed, and every trick that is known to make Liquid Haskell say SAFE, on several pairs each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from liquid_honest import HONEST as TRUE_PAIRS
from proofs import Proof

NEEDLE = "152415787532388367501905199875019052100"
ROOT = "12345678901234567890"


def integer(body: str) -> str:
    return f"f :: Integer -> Integer\nf {body}\n"


# Pairs that differ, each with how the lemma is applied to its arguments and a number among them.
PAIRS = {
    "double and triple": (integer("x = x + x"), integer("x = 3 * x")),
    "a needle": (integer(f"x = if x * x == {NEEDLE} then 1 else 0"), integer("x = 0")),
    "off by one": (integer("x = x"), integer("x = x + 1")),
}
LIST_PAIR = (
    "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = x + f xs\n",
    "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = x - f xs\n",
)

# Functions that never end, or claim what is not so, with what in the proof calls on them. HELPER is
# put into Q (where it is reflected) or into the proof under {-@ reflect @-}.
ENDLESS = {
    "plain": ("go :: Integer -> Integer\ngo n = 1 + go n\n", ""),
    "growing": ("go :: Integer -> Integer\ngo n = 1 + go (n + 1)\n", ""),
    "shrinking without a floor": ("go :: Integer -> Integer\ngo n = 1 + go (n - 1)\n", ""),
    "shrinking by nothing": (
        "go :: Integer -> Integer\ngo n = if n <= 0 then 0 else 1 + go (n - 0)\n",
        "",
    ),
    "shrinking by less than nothing": (
        "go :: Integer -> Integer\ngo n = if n <= 0 then 0 else 1 + go (n - (-1))\n",
        "",
    ),
    "the guard the wrong way": (
        "go :: Integer -> Integer\ngo n = if n >= 0 then 0 else 1 + go (n - 1)\n",
        "",
    ),
    "a guard that either side may hold": (
        "go :: Integer -> Integer\ngo n = if n > 0 || n < 5 then 1 + go (n - 1) else 0\n",
        "",
    ),
    "a guard of another": (
        "go :: Integer -> Integer\ngo n = if 1 > 0 then 1 + go (n - 1) else 0\n",
        "",
    ),
    "a literal is all that stops it": (
        "go :: Integer -> Integer\ngo 0 = 0\ngo n = 1 + go (n - 1)\n",
        "",
    ),
    "itself in its metric": (
        "go :: Integer -> Integer\ngo n = 1 + go n\n",
        "{-@ go :: n:Integer -> Integer / [go n] @-}\n",
    ),
    "its length in its metric": (
        "go :: Integer -> [Integer]\ngo n = n : go n\n",
        "{-@ go :: n:Integer -> [Integer] / [len (go n)] @-}\n",
    ),
    "another function in its metric": (
        "go :: Integer -> Integer\ngo n = 1 + go n\nm :: Integer -> Integer\nm n = 0 - n\n",
        "{-@ go :: n:Integer -> Integer / [m n] @-}\n",
    ),
    "a constant metric": (
        "go :: Integer -> Integer\ngo n = 1 + go n\n",
        "{-@ go :: n:Integer -> Integer / [0] @-}\n",
    ),
    "a negative metric": (
        "go :: Integer -> Integer\ngo n = 1 + go (n + 1)\n",
        "{-@ go :: n:Integer -> Integer / [0 - n] @-}\n",
    ),
    "a product in its metric": (
        "go :: Integer -> Integer\ngo n = 1 + go (n + 1)\n",
        "{-@ go :: n:Integer -> Integer / [n * (0 - 1)] @-}\n",
    ),
    "a condition in its metric": (
        "go :: Integer -> Integer\ngo n = 1 + go n\n",
        "{-@ go :: n:Integer -> Integer / [if n > 0 then n else 0] @-}\n",
    ),
    "Nat required of what is reflected": (
        "go :: Integer -> Integer\ngo n = 1 + go (n - 1)\n",
        "{-@ go :: n:Nat -> Integer / [n] @-}\n",
    ),
    "a condition required of what is reflected": (
        "go :: Integer -> Integer\ngo n = 1 + go n\n",
        "{-@ go :: n:{v:Integer | v > v} -> Integer @-}\n",
    ),
    "handed on": (
        "go :: Integer -> Integer\ngo n = 1 + ap go n\n"
        "ap :: (Integer -> Integer) -> Integer -> Integer\nap g x = g x\n",
        "",
    ),
    "composed": ("go :: Integer -> Integer\ngo n = (go . go) n\n", ""),
    "applied by $": ("go :: Integer -> Integer\ngo n = go $ n\n", ""),
    "by way of another": (
        "go :: Integer -> Integer\ngo n = 1 + back n\nback :: Integer -> Integer\nback n = go n\n",
        "",
    ),
    "by way of two others": (
        "go :: Integer -> Integer\ngo n = 1 + to n\nto :: Integer -> Integer\nto n = back n\n"
        "back :: Integer -> Integer\nback n = go n\n",
        "",
    ),
    "in a let": ("go :: Integer -> Integer\ngo n = let y = 1 + y in y + n\n", ""),
    "in a where": ("go :: Integer -> Integer\ngo n = y + n\n  where y = 1 + y\n", ""),
    "two that hang on each other": (
        "go :: Integer -> Integer\ngo n = y + n\n  where\n    y = 1 + z\n    z = y\n",
        "",
    ),
    "beside a division": (
        "go :: Integer -> Integer\ngo n = if n `div` 2 == n then 1 + go n else 0\n",
        "",
    ),
    "by half": (
        "go :: Integer -> Integer\ngo n = if n `div` 2 < n then 1 + go (n `div` 2) else 0\n",
        "",
    ),
    "no argument at all": ("go :: Integer\ngo = 1 + go\n", ""),
    "arguments exchanged": (
        "two :: Integer -> Integer -> Integer\n"
        "two a b = if a > 0 && b > 0 then 1 + two b a else 0\n"
        "go :: Integer -> Integer\ngo n = two n n\n",
        "",
    ),
    "one down, one up": (
        "two :: Integer -> Integer -> Integer\n"
        "two a b = if a > 0 then 1 + two (b + 1) (a - 1) else 0\n"
        "go :: Integer -> Integer\ngo n = two n n\n",
        "",
    ),
    "the same list": (
        "two :: [Integer] -> Integer\ntwo [] = 0\ntwo (x:xs) = 1 + two (x : xs)\n"
        "go :: Integer -> Integer\ngo n = two [n]\n",
        "",
    ),
    "the same list by its other name": (
        "two :: [Integer] -> Integer\ntwo [] = 0\ntwo l@(_:_) = 1 + two l\n"
        "go :: Integer -> Integer\ngo n = two [n]\n",
        "",
    ),
    "the same list by case": (
        "two :: [Integer] -> Integer\ntwo l = case l of\n  [] -> 0\n  m -> 1 + two m\n"
        "go :: Integer -> Integer\ngo n = two [n]\n",
        "",
    ),
    "a longer list": (
        "two :: [Integer] -> Integer\ntwo [] = 0\ntwo (x:xs) = 1 + two (x : x : xs)\n"
        "go :: Integer -> Integer\ngo n = two [n]\n",
        "",
    ),
    "a part of another argument": (
        "two :: [Integer] -> [Integer] -> Integer\ntwo [] _ = 0\ntwo (x:xs) ys = 1 + two (x : ys) xs\n"
        "go :: Integer -> Integer\ngo n = two [n] [n]\n",
        "",
    ),
    "a pair turned round": (
        "two :: (Integer, Integer) -> Integer\ntwo (a, b) = 1 + two (b, a)\n"
        "go :: Integer -> Integer\ngo n = two (n, n)\n",
        "",
    ),
    "counting up without an end": (
        "two :: Integer -> Integer -> Integer\n"
        "two a b = if a > b then 1 + two (a + 1) b else 0\n"
        "go :: Integer -> Integer\ngo n = two n 0\n",
        "{-@ two :: a:Integer -> b:Integer -> Integer / [b - a] @-}\n",
    ),
    "both ends move": (
        "two :: Integer -> Integer -> Integer\n"
        "two a b = if a < b then 1 + two (a + 1) (b + 1) else 0\n"
        "go :: Integer -> Integer\ngo n = two n (n + 1)\n",
        "{-@ two :: a:Integer -> b:Integer -> Integer / [b - a] @-}\n",
    ),
    "a condition of its own making": (
        "go :: Integer -> Integer\ngo n = if go n > 0 then 1 + go n else 0\n",
        "",
    ),
    "a guard of its own making": (
        "go :: Integer -> Integer\ngo n\n  | go n > 0 = 0\n  | n > 0 = 1 + go (n - 1)\n  | otherwise = 0\n",
        "",
    ),
    "no base": (
        "data T = T T\nto :: T -> Integer\nto (T t) = 1 + to t\n"
        "go :: Integer -> Integer\ngo n = n\n",
        "",
    ),
}
CALL = "lemma x = trivial ? go x\n"


def endless() -> Iterator[Proof]:
    for (pair, (p, q)), (name, (helper, notes)) in product(PAIRS.items(), ENDLESS.items()):
        called = "lemma x = trivial ? go\n" if "no argument" in name else CALL
        yield Proof(f"endless, {name}: {pair}", p, q + helper, notes + called, "attack")
    p, q = PAIRS["double and triple"]
    for name, (helper, notes) in ENDLESS.items():
        if "data " in helper:
            continue
        names = dict.fromkeys(line.split(" ::")[0] for line in helper.splitlines() if " ::" in line)
        reflected = "".join(f"{{-@ reflect {one} @-}}\n" for one in names)
        called = "lemma x = trivial ? go\n" if "no argument" in name else CALL
        proof = reflected + notes + helper + called
        yield Proof(f"endless in the proof, {name}", p, q, proof, "attack")


# Names that mean something to the tool, given to a function that says something else.
KNOWN = [
    "len",
    "isJust",
    "fromJust",
    "fst",
    "listElts",
    "size",
    "head",
    "strLen",
    "autolen",
    "prop",
    "papp1",
    "cast",
    "fromMaybe",
    "true",
    "false",
    "reflect",
    "measure",
    "v",
    "vv",
    "fix",
    "lq_tmp",
    "ds_d",
    "cons",
    "is_Cons",
    "mempty",
    "union",
]
CAPITALS = ["Nat", "Set", "Pred", "Prop", "List", "Cons", "Tuple", "VV", "Str", "TT"]


def named() -> Iterator[Proof]:
    p, q = PAIRS["a needle"]
    for name in KNOWN:
        if not name[0].islower():
            continue
        helper = f"{name} :: [Integer] -> Integer\n{name} _ = 0\n"
        yield Proof(
            f"a helper named {name}", p, q + helper, f"lemma x = trivial ? {name} [x]\n", "attack"
        )
        made = f"f :: Integer -> Integer\nf x = g x x\ng :: Integer -> Integer -> Integer\ng {name} y = y + 0 * {name}\n"
        yield Proof(f"a variable named {name}", p, made, "lemma x = trivial ? g x x\n", "attack")
    for name in ("isJust", "fromJust", "isNothing"):
        helper = f"{name} :: Maybe Integer -> Bool\n{name} _ = False\n"
        yield Proof(
            f"of Maybe, {name}", p, q + helper, f"lemma x = trivial ? {name} (Just x)\n", "attack"
        )
    for name in CAPITALS:
        data = f"data {name} = A{name} | B{name} Integer\n"
        one = f"{data}f :: {name} -> Integer\nf (A{name}) = 0\nf (B{name} x) = x\n"
        other = f"{data}f :: {name} -> Integer\nf (A{name}) = 0\nf (B{name} x) = x + 1\n"
        yield Proof(f"a type named {name}", one, other, "lemma _ = trivial\n", "attack")
        data = f"data T = {name} | U Integer\n"
        one = f"{data}f :: T -> Integer\nf {name} = 0\nf (U x) = x\n"
        other = f"{data}f :: T -> Integer\nf {name} = 0\nf (U x) = 0 - x\n"
        yield Proof(f"a constructor named {name}", one, other, "lemma _ = trivial\n", "attack")


# Int: what holds of all integers and not of those that wrap round.
WRAPS = {
    "a pattern": ("f x = case x * 3 of\n  1 -> True\n  _ -> False", "f _ = False"),
    "a pattern, its arrow below": (
        "f x = case x * 3 of\n  1\n    -> True\n  _\n    -> False",
        "f _ = False",
    ),
    "a pattern in brackets": ("f x = case x * 3 of\n  (1) -> True\n  _ -> False", "f _ = False"),
    "a negative pattern": ("f x = case x * 3 of\n  (-1) -> True\n  _ -> False", "f x = x == 7 && x /= 7"),
    "a pattern in a pair": (
        "f x = case (x * 3, x) of\n  (1, _) -> True\n  _ -> False",
        "f _ = False",
    ),
    "a pattern in a list": ("f x = case [x * 3] of\n  [1] -> True\n  _ -> False", "f _ = False"),
    "a pattern in Just": (
        "f x = case Just (x * 3) of\n  Just 1 -> True\n  _ -> False",
        "f _ = False",
    ),
    "a comparison": ("f x = x * 3 == 1", "f _ = False"),
    "a comparison of a let": ("f x = let y = x * 3 in y == 1", "f _ = False"),
    "a comparison of a where": ("f x = y == 1\n  where y = x * 3", "f _ = False"),
    "a helper's argument": ("f x = g (x * 3)\ng :: Int -> Bool\ng y = y == 1", "f _ = False"),
    "a helper's pattern": ("f x = g (x * 3)\ng :: Int -> Bool\ng 1 = True\ng _ = False", "f _ = False"),
    "a helper's result": ("f x = g x == 1\ng :: Int -> Int\ng y = 3 * y", "f _ = False"),
    "a helper's helper": (
        "f x = g (h x)\ng :: Int -> Bool\ng y = y == 1\nh :: Int -> Int\nh y = k y\nk :: Int -> Int\n"
        "k y = 3 * y",
        "f _ = False",
    ),
    "a guard": ("f x\n  | x * 3 == 1 = True\n  | otherwise = False", "f _ = False"),
    "a condition": ("f x = if x * 3 == 1 then True else False", "f _ = False"),
    "more than itself": ("f x = x + 1 > x", "f _ = True"),
    "less than itself": ("f x = x - 1 < x", "f _ = True"),
    "a square below 0": ("f x = x * x >= 0", "f _ = True"),
    "negated": ("f x = if x < 0 then negate x > 0 else True", "f _ = True"),
    "a difference": ("f x = if x > 0 then 0 - x < 0 else x - 1 < 0", "f _ = True"),
    "guarded on the wrong side": ("f x = if x > 0 then x + 1 > x else True", "f _ = True"),
    "guarded by too little": ("f x = if x < 0 then x - 1 < 0 else True", "f _ = True"),
    "doubled under a guard": ("f x = if x > 0 then x + x > 0 else True", "f _ = True"),
    "divided": ("f x = (x + x) `div` 2 == x", "f _ = True"),
    "the rest of a division": ("f x = (x + x) `mod` 2 == 0 && (3 * x) `mod` 3 == 0", "f _ = True"),
    "equal in a list": ("f x = [x * 3] == [1]", "f _ = False"),
    "equal in a pair": ("f x = (x * 3, x) == (1, x)", "f _ = False"),
    "unequal": ("f x = x * 3 /= 1", "f _ = True"),
    "through a data type": ("f x = g (B (x * 3))\ng :: T -> Bool\ng (B 1) = True\ng _ = False", "f _ = False"),
    "through a list's parts": (
        "f x = g [x * 3]\ng :: [Int] -> Bool\ng (y:_) = y == 1\ng [] = False",
        "f _ = False",
    ),
    "handed to a function": (
        "f x = ap g (x * 3)\nap :: (Int -> Bool) -> Int -> Bool\nap h y = h y\ng :: Int -> Bool\ng y = y == 1",
        "f _ = False",
    ),
    "composed": (
        "f x = (g . h) x\nh :: Int -> Int\nh y = 3 * y\ng :: Int -> Bool\ng y = y == 1",
        "f _ = False",
    ),
    "by $": ("f x = g $ x * 3\ng :: Int -> Bool\ng y = y == 1", "f _ = False"),
    "an accumulator": (
        "f x = go x 0 == 1\ngo :: Int -> Int -> Int\ngo n a = if n <= 0 then a else go (n - 1) (a + 2)",
        "f _ = False",
    ),
    "an if's result": ("f x = (if x > 0 then x * 3 else 2) == 1", "f _ = False"),
}  # fmt: skip


def wrapping() -> Iterator[Proof]:
    for name, (one, other) in WRAPS.items():
        data = "data T = A | B Int\n" if "B (" in one else ""
        p = f"{data}f :: Int -> Bool\n{one}\n"
        q = f"{data}f :: Int -> Bool\n{other}\n"
        yield Proof(f"wraps, {name}", p, q, "lemma _ = trivial\n", "attack")
        yield Proof(f"wraps, {name}, the other way round", q, p, "lemma _ = trivial\n", "attack")


# Divisions: the tool's account of div contradicts itself.
DIVIDES = {
    "a Nat that is none": (
        "half :: Integer -> Integer\nhalf n = n `div` 2\n",
        "{-@ half :: n:Integer -> Nat @-}\nlemma x = trivial ? half (-2)\n",
    ),
    "a Nat that is none, with its argument": (
        "half :: Integer -> Integer\nhalf n = n `div` 2\n",
        "{-@ half :: n:Integer -> Nat @-}\nlemma x = trivial ? half x\n",
    ),
    "the rest as a Nat": (
        "rest :: Integer -> Integer\nrest n = (n `mod` 2) - 5\n",
        "{-@ rest :: n:Integer -> Nat @-}\nlemma x = trivial ? rest x\n",
    ),
    "a Nat by way of another": (
        "half :: Integer -> Integer\nhalf n = n `div` 2\nless :: Integer -> Integer\nless n = half n\n",
        "{-@ less :: n:Integer -> Nat @-}\nlemma x = trivial ? less (-2)\n",
    ),
    "in the lemma": ("", "lemma x = trivial ? (x `div` 2)\n"),
    "in the lemma's condition": ("", "lemma x = if x `div` 2 == x then trivial else trivial\n"),
    "in a helper lemma": (
        "",
        "{-@ h :: x:Integer -> { fP x == fQ x } @-}\nh :: Integer -> Proof\n"
        "h x = trivial ? (x `div` 2)\nlemma x = h x\n",
    ),
    "in a statement": (
        "",
        "{-@ h :: x:Integer -> { x `div` 2 == 0 } @-}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n",
    ),
    "by slash in a statement": (
        "",
        "{-@ h :: x:Integer -> { x / 2 == 0 } @-}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n",
    ),
    "by zero": ("z :: Integer -> Integer\nz n = n `div` 0\n", "lemma x = trivial ? z x\n"),
    "by a variable": (
        "z :: Integer -> Integer -> Integer\nz n k = n `div` k\n",
        "lemma x = trivial ? z x x\n",
    ),
    "by a negative number": (
        "z :: Integer -> Integer\nz n = n `div` (-2)\n",
        "lemma x = trivial ? z x\n",
    ),
    "by a sum": ("z :: Integer -> Integer\nz n = n `div` (1 - 1)\n", "lemma x = trivial ? z x\n"),
    "handed on": (
        "z :: Integer -> Integer\nz n = ap div n\n"
        "ap :: (Integer -> Integer -> Integer) -> Integer -> Integer\nap g x = g x 0\n",
        "lemma x = trivial ? z x\n",
    ),
    "in a let": (
        "z :: Integer -> Integer\nz n = let d = n `div` 2 in d\n",
        "{-@ z :: n:Integer -> Nat @-}\nlemma x = trivial ? z (-2)\n",
    ),
}


def dividing() -> Iterator[Proof]:
    for (pair, (p, q)), (name, (helper, proof)) in product(PAIRS.items(), DIVIDES.items()):
        yield Proof(f"divides, {name}: {pair}", p, q + helper, proof, "attack")
    for by in ("(-2)", "(-3)"):
        p = integer(f"x = x `div` {by}")
        q = integer(f"x = negate (x `div` {by[2]})")
        yield Proof(f"rounded otherwise, {by}", p, q, "lemma _ = trivial\n", "attack")


STATED = "x:Integer -> { fP x == fQ x }"
WORDS = {
    "nothing but trivial": "lemma _ = trivial\n",
    "itself": "lemma x = lemma x\n",
    "itself and one more": "lemma x = lemma (x + 1)\n",
    "itself with a metric": f"{{-@ lemma :: {STATED} / [x] @-}}\nlemma x = lemma (x - 1)\n",
    "a metric of a function": f"{{-@ lemma :: {STATED} / [fP x] @-}}\nlemma x = lemma x\n",
    "a bounded helper that goes on": (
        "{-@ h :: x:Nat -> { fP x == fQ x } / [x] @-}\nh :: Integer -> Proof\nh x = h (x - 1)\n"
        "lemma x = if x >= 0 then h x else h (0 - x)\n"
    ),
    "a bounded helper called beyond": (
        "{-@ h :: x:{v:Integer | v > 0 && v < 0} -> { fP x == fQ x } @-}\nh :: Integer -> Proof\n"
        "h _ = trivial\nlemma x = h x\n"
    ),
    "a helper that calls back": (
        f"{{-@ h :: {STATED} @-}}\nh :: Integer -> Proof\nh x = lemma x\nlemma x = h x\n"
    ),
    "a helper that calls itself": (
        f"{{-@ h :: {STATED} @-}}\nh :: Integer -> Proof\nh x = h x\nlemma x = h x\n"
    ),
    "assume": f"{{-@ assume lemma :: {STATED} @-}}\nlemma _ = trivial\n",
    "assume in capitals": f"{{-@ ASSUME lemma :: {STATED} @-}}\nlemma _ = trivial\n",
    "assume a helper": (
        f"{{-@ assume h :: {STATED} @-}}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n"
    ),
    "lemma reflected": "{-@ reflect lemma @-}\nlemma :: Integer -> Proof\nlemma _ = trivial\n",
    "assume reflect": "{-@ assume reflect fP as fQ @-}\nlemma _ = trivial\n",
    "lazy": "{-@ lazy lemma @-}\nlemma x = lemma x\n",
    "lazyvar": "{-@ lazyvar lemma @-}\nlemma x = lemma x\n",
    "ignore": "{-@ ignore lemma @-}\nlemma _ = trivial\n",
    "fail": "{-@ fail lemma @-}\nlemma _ = trivial\n",
    "option": '{-@ LIQUID "--no-totality" @-}\nlemma _ = trivial\n',
    "two options": '{-@ LIQUID "--no-termination" @-}\n{-@ LIQUID "--diff" @-}\nlemma x = lemma x\n',
    "axiomatize": "{-@ axiomatize fP @-}\nlemma _ = trivial\n",
    "inline": "{-@ inline fP @-}\nlemma _ = trivial\n",
    "measure": "{-@ measure fP :: Integer -> Integer @-}\nlemma _ = trivial\n",
    "invariant": "{-@ invariant {v:Integer | v == 0} @-}\nlemma _ = trivial\n",
    "using": "{-@ using (Integer) as {v:Integer | v == 0} @-}\nlemma _ = trivial\n",
    "alias": "{-@ type Integer = {v:Integer | v == 0} @-}\nlemma _ = trivial\n",
    "predicate": "{-@ predicate Eq X Y = X == X @-}\nlemma _ = trivial\n",
    "embed": "{-@ embed Integer as bool @-}\nlemma _ = trivial\n",
    "qualifier": "{-@ qualif Bad(v:a): false @-}\nlemma _ = trivial\n",
    "define": "{-@ define fP x = (fQ x) @-}\nlemma _ = trivial\n",
    "rewriting": f"{{-@ rewriteWith lemma [h] @-}}\n{{-@ h :: {STATED} @-}}\nh :: Integer -> Proof\nh x = lemma x\nlemma _ = trivial\n",
    "a bound": "{-@ bound b = \\x -> x == 0 @-}\nlemma _ = trivial\n",
    "a class law": "{-@ class Eq a where (==) :: a -> a -> {v:Bool | v} @-}\nlemma _ = trivial\n",
    "data refined": "{-@ data Bool = True | False @-}\nlemma _ = trivial\n",
    "automatic instances": "{-@ automatic-instances lemma @-}\nlemma _ = trivial\n",
    "a spec of +": "{-@ (+) :: x:a -> y:a -> {v:a | false} @-}\nlemma _ = trivial\n",
    "a spec of trivial": "{-@ trivial :: {v:Proof | false} @-}\nlemma _ = trivial\n",
    "a spec of fP": "{-@ fP :: x:Integer -> {v:Integer | v == 0} @-}\nlemma _ = trivial\n",
    "fP narrowed": "{-@ fP :: x:Nat -> Integer @-}\nlemma _ = trivial\n",
    "fQ a Nat": "{-@ fQ :: x:Integer -> Nat @-}\nlemma _ = trivial\n",
    "two annotations in one": f"{{-@ lemma :: {STATED} @-}} {{-@ ignore lemma @-}}\nlemma _ = trivial\n",
    "an annotation in an annotation": f"{{-@ h :: {STATED} {{-@ ignore lemma @-}} @-}}\nlemma _ = trivial\n",
    "an annotation not closed": "{-@ ignore lemma -}\nlemma _ = trivial\n",
    "a comment that becomes one": "{- {-@ ignore lemma @-} -}\nlemma _ = trivial\n",
    "an annotation after two dashes": "-- {-@ ignore lemma @-}\nlemma _ = trivial\n",
    "an annotation over lines": "{-@\n  ignore\n  lemma\n@-}\nlemma _ = trivial\n",
    "another lemma's statement": "{-@ lemma :: x:Integer -> { fP x == fP x } @-}\nlemma _ = trivial\n",
    "an equation turned into an implication": "{-@ lemma :: x:Integer -> { x > x => fP x == fQ x } @-}\nlemma _ = trivial\n",
    "true for a statement": "{-@ lemma :: x:Integer -> { True } @-}\nlemma _ = trivial\n",
    "a binder twice": "{-@ h :: x:Integer -> x:Integer -> { fP x == fQ x } @-}\nh :: Integer -> Integer -> Proof\nh _ _ = trivial\nlemma x = h x x\n",
    "a binder that hides a function": "{-@ h :: fQ:Integer -> { fP fQ == fP fQ } @-}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n",
    "a helper's false statement": "{-@ h :: x:Integer -> { x == x + 1 } @-}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n",
    "a false statement by False": "{-@ h :: x:Integer -> { False } @-}\nh :: Integer -> Proof\nh _ = trivial\nlemma x = h x\n",
    "=== alone": "lemma x = fP x === fQ x *** QED\n",
    "==! ": "lemma x = fP x ==! fQ x *** QED\n",
    "==. with a reason": "lemma x = fP x ==. fQ x ? lemma x *** QED\n",
    "Admit": "lemma x = fP x *** Admit\n",
    "QED defined": "lemma x = fP x *** x\n",
    "undefined": "lemma _ = undefined\n",
    "error": 'lemma _ = error "so"\n',
    "unreachable": "lemma _ = unreachable\n",
    "impossible": 'lemma _ = impossible "so"\n',
    "head of nothing": "lemma _ = trivial ? head []\n",
    "minimum of nothing": "lemma _ = trivial ? minimum []\n",
    "foldr1": "lemma _ = trivial ? foldr1 lemma []\n",
    "until": "lemma x = until (== 0) lemma x\n",
    "seq": "lemma x = seq (lemma x) trivial\n",
    "const": "lemma x = const trivial (lemma x)\n",
    "map": "lemma x = trivial ? map lemma [x]\n",
    "a lambda": "lemma = \\x -> lemma x\n",
    "a section": "lemma x = trivial ? (+ 1) x\n",
    "do": "lemma x = do lemma x\n",
    "a comprehension": "lemma x = trivial ? [lemma y | y <- [x]]\n",
    "a range": "lemma x = trivial ? [x ..]\n",
    "a let that goes round": "lemma x = let p = p in p\n",
    "a where that goes round": "lemma x = p\n  where p = p\n",
    "a local function": "lemma x = go x\n  where go y = go y\n",
    "a pattern that cannot fail": "lemma x = let (y, z) = (x, x) in trivial\n",
    "a lazy pattern": "lemma ~x = lemma x\n",
    "a strict pattern": "lemma !x = lemma x\n",
    "a missing case": "lemma 0 = trivial\n",
    "a missing branch": "lemma x | x == 0 = trivial\n",
    "a missing alternative": "lemma x = case x of\n  0 -> trivial\n",
    "a type annotation": "lemma x = (undefined :: Proof)\n",
    "a type application": "lemma x = trivial ? fP @Integer x\n",
    "a constructor out of thin air": "lemma x = trivial ? Bottom x\n",
    "a qualified name": "lemma x = Prelude.undefined\n",
    "unsafeCoerce": "import Unsafe.Coerce\nlemma x = unsafeCoerce x\n",
    "an instance": "instance Num Bool\nlemma _ = trivial\n",
    "a pragma": "{-# RULES \"bad\" forall x. fP x = fQ x #-}\nlemma _ = trivial\n",
    "an option of GHC": "{-# OPTIONS_GHC -fplugin-opt=LiquidHaskell:--no-termination #-}\nlemma x = lemma x\n",
    "cpp": "{-# LANGUAGE CPP #-}\n#define lemma other\nlemma _ = trivial\n",
    "braces": "lemma x = case x of { _ -> trivial }\n",
    "a semicolon": "lemma _ = trivial; other = undefined\n",
    "two lemmas": "lemma 0 = trivial\nh _ = trivial\nlemma _ = trivial\n",
}  # fmt: skip


def worded() -> Iterator[Proof]:
    for (pair, (p, q)), (name, proof) in product(PAIRS.items(), WORDS.items()):
        yield Proof(f"said, {name}: {pair}", p, q, proof, "attack")


# Types, texts, conditions and helpers that might confuse the logic.
HELPED = {
'nested type':('data N a = Z a | S (N (a, a))\ndep :: N a -> Integer\ndep (Z _) = 0\ndep (S n) = 1 + dep n\n','lemma x = trivial ? dep (Z x)\n'),
'nat minus':('g :: Integer -> Integer\ng n = n - 5\n','{-@ g :: n:Integer -> Nat @-}\nlemma x = trivial ? g x\n'),
'nat rec':('g :: [Integer] -> Integer\ng [] = 0 - 1\ng (x:xs) = 1 + g xs\n','{-@ g :: xs:[Integer] -> Nat @-}\nlemma x = trivial ? g [x]\n'),
'mutual data':('data A = MkA B\ndata B = MkB A | NoB\nun :: A -> Integer\nun (MkA NoB) = 0\nun (MkA (MkB a)) = 1 + un a\n','lemma x = trivial ? un (MkA NoB)\n'),
'uninhabited pair':('data A = MkA B\ndata B = MkB A\nun :: A -> Integer\nun (MkA (MkB a)) = 1 + un a\n','{-@ h :: a:A -> { 1 == 2 } @-}\nh :: A -> Proof\nh (MkA (MkB a)) = h a\nlemma x = trivial\n'),
'equal functions':('','{-@ e :: g:(Integer -> Integer) -> h:(Integer -> Integer) -> { g == h } @-}\ne :: (Integer -> Integer) -> (Integer -> Integer) -> Proof\ne _ _ = trivial\nlemma x = e fP fQ\n'),
'iff':('','{-@ e :: b:Bool -> c:Bool -> { b <=> c } @-}\ne :: Bool -> Bool -> Proof\ne _ _ = trivial\nlemma x = e True False\n'),
'bool arithmetic':('','{-@ e :: b:Bool -> { (b == True) == (b == False) } @-}\ne :: Bool -> Proof\ne _ = trivial\nlemma x = e True\n'),
'len neg':('','{-@ e :: xs:[Integer] -> { len xs < 0 } @-}\ne :: [Integer] -> Proof\ne [] = trivial\ne (_:xs) = e xs\nlemma x = e [x]\n'),
'len of tuple':('','{-@ e :: xs:(Integer, Integer) -> { len xs >= 0 } @-}\ne :: (Integer, Integer) -> Proof\ne _ = trivial\nlemma x = e (x, x)\n'),
'strings':('s :: Integer -> String\ns x = "ab"\nt :: Integer -> String\nt x = "ba"\n','{-@ e :: x:Integer -> { s x == t x } @-}\ne :: Integer -> Proof\ne _ = trivial\nlemma x = e x\n'),
'chars':("s :: Integer -> Char\ns x = 'a'\nt :: Integer -> Char\nt x = 'b'\n",'{-@ e :: x:Integer -> { s x == t x } @-}\ne :: Integer -> Proof\ne _ = trivial\nlemma x = e x\n'),
'empty':('s :: Integer -> String\ns x = ""\nt :: Integer -> String\nt x = "b"\n','{-@ e :: x:Integer -> { s x == t x } @-}\ne :: Integer -> Proof\ne _ = trivial\nlemma x = e x\n'),
'precond false via nat':('','{-@ e :: x:Nat -> { x >= 0 } @-}\ne :: Integer -> Proof\ne _ = trivial\n{-@ h :: x:Integer -> { fP x == fQ x } @-}\nh :: Integer -> Proof\nh x = e (0 - 1)\nlemma x = h x\n'),
'lemma in lemma arg':('','{-@ e :: x:Integer -> y:{v:Integer | fP x == fQ x} -> { fP x == fQ x } @-}\ne :: Integer -> Integer -> Proof\ne _ _ = trivial\nlemma x = e x x\n'),
'negative via bound':('','{-@ e :: x:{v:Integer | v >= 5} -> { fP x == fQ x } @-}\ne :: Integer -> Proof\ne x = e (x - 1)\nlemma x = if x >= 5 then e x else trivial\n'),
'phantom':('data P a = MkP Integer\nun :: P a -> Integer\nun (MkP n) = n\n','lemma x = trivial ? un (MkP x)\n'),
'mod range':('m :: Integer -> Integer\nm n = n `mod` 3\n','{-@ e :: x:Integer -> { m x == 3 } @-}\ne :: Integer -> Proof\ne _ = trivial\nlemma x = e x\n'),
'mod arg in lemma':('m :: Integer -> Integer\nm n = n `div` 3\n','lemma x = trivial ? m (m (0 - x))\n'),
'div helper in case':('m :: Integer -> Integer\nm n = n `div` 3\n','lemma x = case m x of\n  0 -> trivial\n  _ -> trivial\n'),
'div helper in if':('m :: Integer -> Integer\nm n = n `div` 2\n','lemma x = if m x < x then trivial else trivial\n'),
'div in Bool helper':('m :: Integer -> Bool\nm n = n `div` 2 < n\n','lemma x = if m 0 then trivial else trivial\n'),
'div with guards':('m :: Integer -> Integer\nm n\n  | n `div` 2 == 7 = 1\n  | otherwise = 0\n','{-@ e :: x:Integer -> { m x == 2 } @-}\ne :: Integer -> Proof\ne x = trivial ? m x\nlemma x = e x\n'),
'compose':('c :: Integer -> Integer\nc x = (fP2 . fP2) x\nfP2 :: Integer -> Integer\nfP2 x = x\n','lemma x = trivial ? c x\n'),
'partial':('a2 :: Integer -> Integer -> Integer\na2 x y = x + y\nap :: (Integer -> Integer) -> Integer\nap g = g 1\n','{-@ e :: x:Integer -> { ap (a2 x) == x } @-}\ne :: Integer -> Proof\ne x = trivial ? ap (a2 x)\nlemma x = e x\n'),
}  # fmt: skip


def helped() -> Iterator[Proof]:
    p, q = PAIRS["double and triple"]
    for name, (helper, proof) in HELPED.items():
        yield Proof(f"helped, {name}", p, q + helper, proof, "attack")


def changed() -> Iterator[Proof]:
    """Honest proofs of pairs of which one side has been changed a little."""
    swaps = [(" + ", " - "), (" <= ", " < "), (" > ", " >= "), ("True", "False"), (" 0\n", " 1\n")]
    swaps += [("== 2", "== 3"), ("&&", "||"), ("= []", "= [0]"), ("'A'", "'Z'"), ('"yes"', '"yeS"')]
    swaps += [(" * ", " + "), ("(n - 1)", "(n - 2)"), ("x : ", ""), ("Just (", "Just (1 + ")]
    for pair in TRUE_PAIRS:
        for old, new in swaps:
            other = pair.q.replace(old, new, 1)
            if other != pair.q:
                name = f"changed, {old.strip()} for {new.strip()}: {pair.name}"
                yield Proof(name, pair.p, other, pair.proof, "changed")


ATTACKS = [*endless(), *named(), *wrapping(), *dividing(), *worded(), *helped()]
CHANGED = list(changed())
