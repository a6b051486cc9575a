# ruff: noqa: E501  (programs as they are handed in, on lines of their own)
"""Honest proofs of true equivalences, in as many ways as people write them. What the judge denies of
these it denies to somebody who was right."""

from __future__ import annotations

from proofs import Proof


def honest(name: str, p: str, q: str, proof: str) -> Proof:
    return Proof(name, p.lstrip("\n"), q.lstrip("\n"), proof.lstrip("\n"), "")


SUM = "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = x + f xs\n"
APP = "app :: [a] -> [a] -> [a]\napp [] ys = ys\napp (x:xs) ys = x : app xs ys\n"
BY_LIST = "lemma [] = trivial\nlemma (_:xs) = lemma xs\n"
ASSOC = """{-@ assoc :: xs:[a] -> ys:[a] -> zs:[a] -> { app (app xs ys) zs == app xs (app ys zs) } @-}
assoc :: [a] -> [a] -> [a] -> Proof
assoc [] _ _ = trivial
assoc (_:xs) ys zs = assoc xs ys zs
"""

HONEST = [
    honest(
        "a function of the proof's own",
        SUM,
        "f :: [Integer] -> Integer\nf xs = go 0 xs\ngo :: Integer -> [Integer] -> Integer\n"
        "go acc [] = acc\ngo acc (x:xs) = go (acc + x) xs\n",
        """
{-@ reflect plus @-}
plus :: Integer -> [Integer] -> Integer
plus n xs = n + fP xs
{-@ step :: acc:Integer -> xs:[Integer] -> { go acc xs == plus acc xs } @-}
step :: Integer -> [Integer] -> Proof
step _ [] = trivial
step acc (x:xs) = step (acc + x) xs
lemma xs = step 0 xs
""",
    ),
    honest(
        "a recursive function of the proof's own",
        "f :: [a] -> [a]\nf [] = []\nf (x:xs) = app (f xs) [x]\n" + APP,
        "f :: [a] -> [a]\nf xs = back xs []\nback :: [a] -> [a] -> [a]\nback [] acc = acc\n"
        "back (x:xs) acc = back xs (x : acc)\n",
        """
{-@ reflect both @-}
both :: [a] -> [a] -> [a]
both xs ys = app (fP xs) ys
"""
        + ASSOC
        + """
{-@ right :: xs:[a] -> { app xs [] == xs } @-}
right :: [a] -> Proof
right [] = trivial
right (_:xs) = right xs
{-@ step :: xs:[a] -> ys:[a] -> { back xs ys == both xs ys } @-}
step :: [a] -> [a] -> Proof
step [] _ = trivial
step (x:xs) ys = step xs (x : ys) ? assoc (fP xs) [x] ys
lemma xs = step xs [] ? right (fP xs)
""",
    ),
    honest(
        "a higher-order helper",
        "f :: [Integer] -> [Integer]\nf [] = []\nf (x:xs) = (x + 1) : f xs\n",
        "f :: [Integer] -> [Integer]\nf xs = each inc xs\ninc :: Integer -> Integer\ninc x = x + 1\n"
        "each :: (a -> b) -> [a] -> [b]\neach _ [] = []\neach g (x:xs) = g x : each g xs\n",
        BY_LIST,
    ),
    honest(
        "a lemma about functions",
        "f :: [Integer] -> [Integer]\nf xs = each inc (each twice xs)\n"
        "inc :: Integer -> Integer\ninc x = x + 1\ntwice :: Integer -> Integer\ntwice x = 2 * x\n"
        "each :: (a -> b) -> [a] -> [b]\neach _ [] = []\neach g (x:xs) = g x : each g xs\n",
        "f :: [Integer] -> [Integer]\nf xs = each (after inc twice) xs\n"
        "inc :: Integer -> Integer\ninc x = x + 1\ntwice :: Integer -> Integer\ntwice x = 2 * x\n"
        "each :: (a -> b) -> [a] -> [b]\neach _ [] = []\neach g (x:xs) = g x : each g xs\n"
        "after :: (b -> c) -> (a -> b) -> a -> c\nafter g h x = g (h x)\n",
        """
{-@ fuse :: g:(b -> c) -> h:(a -> b) -> xs:[a] -> { each g (each h xs) == each (after g h) xs } @-}
fuse :: (b -> c) -> (a -> b) -> [a] -> Proof
fuse _ _ [] = trivial
fuse g h (_:xs) = fuse g h xs
lemma xs = fuse inc twice xs
""",
    ),
    honest(
        "a filter by a function",
        "f :: [Integer] -> [Integer]\nf [] = []\nf (x:xs) = if x > 0 then x : f xs else f xs\n",
        "f :: [Integer] -> [Integer]\nf xs = keep above xs\nabove :: Integer -> Bool\nabove x = x > 0\n"
        "keep :: (a -> Bool) -> [a] -> [a]\nkeep _ [] = []\n"
        "keep g (x:xs) = if g x then x : keep g xs else keep g xs\n",
        "lemma [] = trivial\nlemma (x:xs) = if x > 0 then lemma xs else lemma xs\n",
    ),
    honest(
        "a natural-number metric",
        "f :: Integer -> Integer\nf n = if n <= 0 then 0 else 2 + f (n - 1)\n",
        "f :: Integer -> Integer\nf n = if n <= 0 then 0 else n + n\n",
        """
{-@ up :: n:Nat -> { fP n == n + n } / [n] @-}
up :: Integer -> Proof
up n = if n == 0 then trivial else up (n - 1)
lemma n = if n <= 0 then trivial else up n
""",
    ),
    honest(
        "a sum by a formula",
        "f :: Integer -> Integer\nf n = 2 * total n\ntotal :: Integer -> Integer\n"
        "total n = if n <= 0 then 0 else n + total (n - 1)\n",
        "f :: Integer -> Integer\nf n = if n <= 0 then 0 else n * (n + 1)\n",
        """
{-@ gauss :: n:Nat -> { 2 * total n == n * (n + 1) } / [n] @-}
gauss :: Integer -> Proof
gauss n = if n == 0 then trivial else gauss (n - 1)
lemma n = if n <= 0 then trivial else gauss n
""",
    ),
    honest(
        "fill",
        "f :: Int -> Integer -> [Integer]\nf n x = if n <= 0 then [] else x : f (n - 1) x\n",
        "f :: Int -> Integer -> [Integer]\nf n x\n  | n > 0 = x : f (n - 1) x\n  | otherwise = []\n",
        "lemma n x = if n <= 0 then trivial else lemma (n - 1) x\n",
    ),
    honest(
        "count two",
        "f :: [Int] -> Int\nf [] = 0\nf (x:xs) = if x == 2 then 1 + f xs else f xs\n",
        "f :: [Int] -> Int\nf [] = 0\nf (2:xs) = f xs + 1\nf (_:xs) = f xs\n",
        "lemma [] = trivial\nlemma (x:xs) = if x == 2 then lemma xs else lemma xs\n",
    ),
    honest(
        "an empty string beside others",
        'f :: Bool -> String\nf b = if b then "yes" else ""\n',
        'f :: Bool -> String\nf b = case b of\n  True -> "yes"\n  False -> ""\n',
        "lemma b = if b then trivial else trivial\n",
    ),
    honest(
        "strings by sign",
        'f :: Integer -> String\nf x = if x > 0 then "pos" else if x < 0 then "neg" else ""\n',
        'f :: Integer -> String\nf x\n  | x == 0 = ""\n  | x < 0 = "neg"\n  | otherwise = "pos"\n',
        "lemma _ = trivial\n",
    ),
    honest(
        "a helper called len",
        "f :: [a] -> [a] -> Integer\nf xs ys = len (app xs ys)\nlen :: [a] -> Integer\nlen [] = 0\n"
        "len (_:xs) = 1 + len xs\n" + APP,
        "f :: [a] -> [a] -> Integer\nf xs ys = len xs + len ys\nlen :: [a] -> Integer\nlen [] = 0\n"
        "len (_:xs) = 1 + len xs\n",
        "lemma [] _ = trivial\nlemma (_:xs) ys = lemma xs ys\n",
    ),
    honest(
        "helpers called isJust and listElts",
        "f :: (Maybe Integer, Bool) -> Bool\nf (m, b) = case m of\n  Nothing -> False\n  Just _ -> b\n",
        "f :: (Maybe Integer, Bool) -> Bool\nf t = isJust (listElts t) && size t\n"
        "listElts :: (a, b) -> a\nlistElts (x, _) = x\nsize :: (a, b) -> b\nsize (_, y) = y\n"
        "isJust :: Maybe a -> Bool\nisJust Nothing = False\nisJust (Just _) = True\n",
        "lemma (m, _) = case m of\n  Nothing -> trivial\n  Just _ -> trivial\n",
    ),
    honest(
        "where",
        "f :: Integer -> Integer\nf x = y + y\n  where y = x + 1\n",
        "f :: Integer -> Integer\nf x = let y = 2 * x in y + 2\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "a where of two values",
        "f :: Integer -> Integer -> Integer\nf x y = a - b\n  where\n    a = x * x\n    b = y * y\n",
        "f :: Integer -> Integer -> Integer\nf x y = (x + y) * (x - y)\n",
        "lemma _ _ = trivial\n",
    ),
    honest(
        "squares",
        "f :: Integer -> Integer -> Integer\nf x y = (x + y) * (x + y)\n",
        "f :: Integer -> Integer -> Integer\nf x y = x * x + 2 * x * y + y * y\n",
        "lemma _ _ = trivial\n",
    ),
    honest(
        "de Morgan",
        "f :: Bool -> Bool -> Bool\nf a b = not (a && b)\n",
        "f :: Bool -> Bool -> Bool\nf a b = not a || not b\n",
        "lemma _ _ = trivial\n",
    ),
    honest(
        "majority",
        "f :: Bool -> Bool -> Bool -> Bool\nf a b c = (a && b) || (b && c) || (a && c)\n",
        "f :: Bool -> Bool -> Bool -> Bool\nf a b c = if a then b || c else b && c\n",
        "lemma a _ _ = if a then trivial else trivial\n",
    ),
    honest(
        "insertion",
        "f :: Integer -> [Integer] -> [Integer]\nf y [] = [y]\n"
        "f y (x:xs) = if y <= x then y : x : xs else x : f y xs\n",
        "f :: Integer -> [Integer] -> [Integer]\nf y [] = [y]\nf y (x:xs)\n"
        "  | x < y = x : f y xs\n  | otherwise = y : x : xs\n",
        "lemma _ [] = trivial\nlemma y (x:xs) = if y <= x then trivial else lemma y xs\n",
    ),
    honest(
        "insertion of Int",
        "f :: Int -> [Int] -> [Int]\nf y [] = [y]\n"
        "f y (x:xs) = if y <= x then y : x : xs else x : f y xs\n",
        "f :: Int -> [Int] -> [Int]\nf y [] = [y]\nf y (x:xs)\n"
        "  | x < y = x : f y xs\n  | otherwise = y : x : xs\n",
        "lemma _ [] = trivial\nlemma y (x:xs) = if y <= x then trivial else lemma y xs\n",
    ),
    honest(
        "sorting by the same insertion",
        "f :: [Integer] -> [Integer]\nf [] = []\nf (x:xs) = place x (f xs)\n"
        "place :: Integer -> [Integer] -> [Integer]\nplace y [] = [y]\n"
        "place y (x:xs) = if y <= x then y : x : xs else x : place y xs\n",
        "f :: [Integer] -> [Integer]\nf xs = case xs of\n  [] -> []\n  (y:ys) -> place y (f ys)\n"
        "place :: Integer -> [Integer] -> [Integer]\nplace y [] = [y]\n"
        "place y (x:xs) = if y <= x then y : x : xs else x : place y xs\n",
        BY_LIST,
    ),
    honest(
        "a tree's sum",
        "data Tree = Leaf | Node Tree Integer Tree\nf :: Tree -> Integer\nf Leaf = 0\n"
        "f (Node l x r) = f l + x + f r\n",
        "data Tree = Leaf | Node Tree Integer Tree\nf :: Tree -> Integer\nf t = case t of\n"
        "  Leaf -> 0\n  Node l x r -> x + (f r + f l)\n",
        "lemma Leaf = trivial\nlemma (Node l _ r) = lemma l ? lemma r\n",
    ),
    honest(
        "a data type called Nat",
        "data Nat = Zero | Succ Nat\nf :: Nat -> Integer\nf Zero = 0\nf (Succ n) = 1 + f n\n",
        "data Nat = Zero | Succ Nat\nf :: Nat -> Integer\nf n = go 0 n\n"
        "go :: Integer -> Nat -> Integer\ngo k Zero = k\ngo k (Succ n) = go (k + 1) n\n",
        """
{-@ step :: k:Integer -> n:Nat -> { go k n == k + fP n } @-}
step :: Integer -> Nat -> Proof
step _ Zero = trivial
step k (Succ n) = step (k + 1) n
lemma n = step 0 n
""",
    ),
    honest(
        "three lights",
        "data Light = Red | Green | Amber\nf :: Light -> Light\nf Red = Green\nf Green = Amber\n"
        "f Amber = Red\n",
        "data Light = Red | Green | Amber\nf :: Light -> Light\nf x = g (g x)\n"
        "g :: Light -> Light\ng Red = Amber\ng Amber = Green\ng Green = Red\n",
        "lemma Red = trivial\nlemma Green = trivial\nlemma Amber = trivial\n",
    ),
    honest(
        "derived equality",
        "data C = A | B deriving (Eq, Show)\nf :: C -> C -> Bool\nf x y = x == y\n",
        "data C = A | B deriving (Eq, Show)\nf :: C -> C -> Bool\nf A A = True\nf B B = True\n"
        "f _ _ = False\n",
        "lemma A A = trivial\nlemma A B = trivial\nlemma B A = trivial\nlemma B B = trivial\n",
    ),
    honest(
        "Maybe added",
        "f :: Maybe Integer -> Maybe Integer -> Maybe Integer\nf (Just a) (Just b) = Just (a + b)\n"
        "f _ _ = Nothing\n",
        "f :: Maybe Integer -> Maybe Integer -> Maybe Integer\nf x y = case x of\n"
        "  Nothing -> Nothing\n  Just a -> case y of\n    Nothing -> Nothing\n"
        "    Just b -> Just (b + a)\n",
        "lemma Nothing _ = trivial\nlemma (Just _) Nothing = trivial\nlemma (Just _) (Just _) = trivial\n",
    ),
    honest(
        "Either",
        "f :: Either Integer Bool -> Integer\nf (Left n) = n\nf (Right b) = if b then 1 else 0\n",
        "f :: Either Integer Bool -> Integer\nf e = case e of\n  Right True -> 1\n  Right False -> 0\n"
        "  Left n -> n + 0\n",
        "lemma (Left _) = trivial\nlemma (Right b) = if b then trivial else trivial\n",
    ),
    honest(
        "pairs swapped",
        "f :: (Integer, Bool) -> (Bool, Integer)\nf (n, b) = (b, n)\n",
        "f :: (Integer, Bool) -> (Bool, Integer)\nf t = case t of (n, b) -> (b, n + 0)\n",
        "lemma (_, _) = trivial\n",
    ),
    honest(
        "unzipping",
        "f :: [(Integer, Bool)] -> ([Integer], [Bool])\nf [] = ([], [])\n"
        "f ((n, b):rest) = case f rest of\n  (ns, bs) -> (n : ns, b : bs)\n",
        "f :: [(Integer, Bool)] -> ([Integer], [Bool])\nf xs = (ones xs, twos xs)\n"
        "ones :: [(a, b)] -> [a]\nones [] = []\nones ((n, _):rest) = n : ones rest\n"
        "twos :: [(a, b)] -> [b]\ntwos [] = []\ntwos ((_, b):rest) = b : twos rest\n",
        "lemma [] = trivial\nlemma ((_, _):rest) = lemma rest\n",
    ),
    honest(
        "interleaving, arguments in turns",
        "f :: [a] -> [a] -> [a]\nf [] ys = ys\nf (x:xs) ys = x : f ys xs\n",
        "f :: [a] -> [a] -> [a]\nf xs ys = case xs of\n  [] -> ys\n  z : zs -> z : f ys zs\n",
        "{-@ fP :: xs:[a] -> ys:[a] -> [a] / [len xs + len ys] @-}\n"
        "{-@ fQ :: xs:[a] -> ys:[a] -> [a] / [len xs + len ys] @-}\n"
        "{-@ lemma :: xs:[a] -> ys:[a] -> { fP xs ys == fQ xs ys } / [len xs + len ys] @-}\n"
        "lemma [] _ = trivial\nlemma (_:xs) ys = lemma ys xs\n",
    ),
    honest(
        "merging with a metric of two lists",
        "f :: [Integer] -> [Integer] -> [Integer]\nf [] ys = ys\nf xs [] = xs\n"
        "f (x:xs) (y:ys) = if x <= y then x : f xs (y : ys) else y : f (x : xs) ys\n",
        "f :: [Integer] -> [Integer] -> [Integer]\nf xs ys = join xs ys\n"
        "join :: [Integer] -> [Integer] -> [Integer]\njoin [] ys = ys\njoin xs [] = xs\n"
        "join a@(x:xs) b@(y:ys) = if x <= y then x : join xs b else y : join a ys\n",
        "{-@ fP :: xs:[Integer] -> ys:[Integer] -> [Integer] / [len xs + len ys] @-}\n"
        "{-@ join :: xs:[Integer] -> ys:[Integer] -> [Integer] / [len xs + len ys] @-}\n"
        "{-@ lemma :: xs:[Integer] -> ys:[Integer] -> { fP xs ys == fQ xs ys } / "
        "[len xs + len ys] @-}\nlemma [] _ = trivial\nlemma (_:_) [] = trivial\n"
        "lemma a@(x:xs) b@(y:ys) = if x <= y then lemma xs b else lemma a ys\n",
    ),
    honest(
        "counting up",
        "f :: Integer -> Integer -> Integer\nf low high = if low >= high then 0 else 1 + f (low + 1) high\n",
        "f :: Integer -> Integer -> Integer\nf low high\n  | low < high = f (low + 1) high + 1\n"
        "  | otherwise = 0\n",
        "{-@ fP :: a:Integer -> b:Integer -> Integer / [b - a] @-}\n"
        "{-@ fQ :: a:Integer -> b:Integer -> Integer / [b - a] @-}\n"
        "{-@ lemma :: a:Integer -> b:Integer -> { fP a b == fQ a b } / [b - a] @-}\n"
        "lemma a b = if a >= b then trivial else lemma (a + 1) b\n",
    ),
    honest(
        "factorial with an accumulator",
        "f :: Integer -> Integer\nf n = if n <= 0 then 1 else n * f (n - 1)\n",
        "f :: Integer -> Integer\nf n = go n 1\ngo :: Integer -> Integer -> Integer\n"
        "go n acc = if n <= 0 then acc else go (n - 1) (acc * n)\n",
        """
{-@ step :: n:Integer -> acc:Integer -> { go n acc == acc * fP n } @-}
step :: Integer -> Integer -> Proof
step n acc = if n <= 0 then trivial else step (n - 1) (acc * n)
lemma n = step n 1
""",
    ),
    honest(
        "powers",
        "f :: Integer -> Integer -> Integer\nf b e\n  | e <= 0 = 1\n  | otherwise = b * f b (e - 1)\n",
        "f :: Integer -> Integer -> Integer\nf b e = if e > 0 then f b (e - 1) * b else 1\n",
        "{-@ fP :: b:Integer -> e:Integer -> Integer / [e] @-}\n"
        "{-@ fQ :: b:Integer -> e:Integer -> Integer / [e] @-}\n"
        "{-@ lemma :: b:Integer -> e:Integer -> { fP b e == fQ b e } / [e] @-}\n"
        "lemma b e = if e <= 0 then trivial else lemma b (e - 1)\n",
    ),
    honest(
        "an operator of the program's own",
        "f :: [a] -> [a] -> [a] -> [a]\nf xs ys zs = (xs +++ ys) +++ zs\n"
        "infixr 5 +++\n(+++) :: [a] -> [a] -> [a]\n[] +++ ys = ys\n(x:xs) +++ ys = x : (xs +++ ys)\n",
        "f :: [a] -> [a] -> [a] -> [a]\nf xs ys zs = xs +++ ys +++ zs\n"
        "infixr 5 +++\n(+++) :: [a] -> [a] -> [a]\n[] +++ ys = ys\n(x:xs) +++ ys = x : (xs +++ ys)\n",
        "{-@ assoc :: xs:[a] -> ys:[a] -> zs:[a] -> { (xs +++ ys) +++ zs == xs +++ (ys +++ zs) } @-}\n"
        "assoc :: [a] -> [a] -> [a] -> Proof\nassoc [] _ _ = trivial\n"
        "assoc (_:xs) ys zs = assoc xs ys zs\nlemma xs ys zs = assoc xs ys zs\n",
    ),
    honest(
        "membership",
        "f :: Integer -> [Integer] -> Bool\nf _ [] = False\nf y (x:xs) = x == y || f y xs\n",
        "f :: Integer -> [Integer] -> Bool\nf _ [] = False\nf y (x:xs) = if y == x then True else f y xs\n",
        "lemma _ [] = trivial\nlemma y (x:xs) = if x == y then trivial else lemma y xs\n",
    ),
    honest(
        "the last one, or another",
        "f :: Integer -> [Integer] -> Integer\nf d [] = d\nf _ [x] = x\nf d (_:xs) = f d xs\n",
        "f :: Integer -> [Integer] -> Integer\nf d [] = d\nf _ (x:xs) = f x xs\n",
        """
{-@ step :: d:Integer -> e:Integer -> x:Integer -> xs:[Integer]
         -> { fP d (x : xs) == fP e (x : xs) } / [len xs] @-}
step :: Integer -> Integer -> Integer -> [Integer] -> Proof
step _ _ _ [] = trivial
step d e _ (y:ys) = step d e y ys
{-@ lemma :: d:Integer -> xs:[Integer] -> { fP d xs == fQ d xs } / [len xs] @-}
lemma _ [] = trivial
lemma _ [_] = trivial
lemma d (x:y:ys) = lemma d (y : ys) ? step d x y ys ? lemma x (y : ys)
""",
    ),
    honest(
        "every other one",
        "f :: [a] -> [a]\nf [] = []\nf [x] = [x]\nf (x:_:xs) = x : f xs\n",
        "f :: [a] -> [a]\nf xs = case xs of\n  [] -> []\n  y : ys -> y : g ys\n"
        "g :: [a] -> [a]\ng [] = []\ng (_:zs) = case zs of\n  [] -> []\n  y : ys -> y : g ys\n",
        """
{-@ step :: x:a -> xs:[a] -> { fP (x : xs) == x : g xs } @-}
step :: a -> [a] -> Proof
step _ [] = trivial
step _ [_] = trivial
step _ (_:y:ys) = step y ys
lemma [] = trivial
lemma (x:xs) = step x xs
""",
    ),
    honest(
        "dedupe by case",
        "f :: [Integer] -> [Integer]\nf (x:y:rest) = if x == y then f (y : rest) else x : f (y : rest)\n"
        "f xs = xs\n",
        "f :: [Integer] -> [Integer]\nf xs = go xs\ngo :: [Integer] -> [Integer]\ngo [] = []\n"
        "go [x] = [x]\ngo (x:y:rest) = if x == y then go (y : rest) else x : go (y : rest)\n",
        "lemma [] = trivial\nlemma [_] = trivial\nlemma (_:y:rest) = lemma (y : rest)\n",
    ),
    honest(
        "halving",
        "f :: Integer -> Integer\nf x = (2 * x) `div` 2 + x `mod` 1\n",
        "f :: Integer -> Integer\nf x = x\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "leap years",
        "f :: Integer -> Bool\nf y = y `mod` 400 == 0 || (y `mod` 4 == 0 && y `mod` 100 /= 0)\n",
        "f :: Integer -> Bool\nf y\n  | y `mod` 400 == 0 = True\n  | y `mod` 100 == 0 = False\n"
        "  | otherwise = y `mod` 4 == 0\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "a division in a helper",
        "f :: Integer -> Maybe Integer\nf n = if even2 n then Just (n `div` 2) else Nothing\n"
        "even2 :: Integer -> Bool\neven2 n = n `mod` 2 == 0\n",
        "f :: Integer -> Maybe Integer\nf n\n  | n `mod` 2 == 1 = Nothing\n  | otherwise = Just (n `div` 2)\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "Int only added",
        "f :: Int -> Int -> Int\nf x y = (x + y) * (x - y)\n",
        "f :: Int -> Int -> Int\nf x y = x * x - y * y\n",
        "lemma _ _ = trivial\n",
    ),
    honest(
        "the length of a list as Int",
        "f :: [a] -> Int\nf [] = 0\nf (_:xs) = 1 + f xs\n",
        "f :: [a] -> Int\nf xs = go 0 xs\ngo :: Int -> [a] -> Int\ngo n [] = n\ngo n (_:xs) = go (n + 1) xs\n",
        """
{-@ step :: n:Int -> xs:[a] -> { go n xs == n + fP xs } @-}
step :: Int -> [a] -> Proof
step _ [] = trivial
step n (_:xs) = step (n + 1) xs
lemma xs = step 0 xs
""",
    ),
    honest(
        "take",
        "f :: Int -> [a] -> [a]\nf n xs = if n <= 0 then [] else case xs of\n  [] -> []\n"
        "  y : ys -> y : f (n - 1) ys\n",
        "f :: Int -> [a] -> [a]\nf _ [] = []\nf n (x:xs)\n  | n > 0 = x : f (n - 1) xs\n  | otherwise = []\n",
        "lemma _ [] = trivial\nlemma n (_:xs) = if n <= 0 then trivial else lemma (n - 1) xs\n",
    ),
    honest(
        "grades",
        "f :: Integer -> Char\nf n\n  | n >= 90 = 'A'\n  | n >= 75 = 'B'\n  | otherwise = 'F'\n",
        "f :: Integer -> Char\nf n = if n < 75 then 'F' else if n < 90 then 'B' else 'A'\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "a character compared",
        "f :: Char -> Bool\nf c = c == 'a'\n",
        "f :: Char -> Bool\nf c = if c == 'a' then True else False\n",
        "lemma c = if c == 'a' then trivial else trivial\n",
    ),
    honest(
        "composition and application",
        "f :: Integer -> Integer\nf x = (inc . inc) x\ninc :: Integer -> Integer\ninc x = x + 1\n",
        "f :: Integer -> Integer\nf x = inc $ inc x\ninc :: Integer -> Integer\ninc x = x + 1\n",
        "lemma _ = trivial\n",
    ),
    honest(
        "an equational proof of a list",
        SUM,
        "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = f xs + x\n",
        "lemma [] = trivial\nlemma (x:xs)\n  = fP (x : xs)\n  === x + fP xs ? lemma xs\n"
        "  === fQ xs + x\n  === fQ (x : xs)\n  *** QED\n",
    ),
    honest(
        "an expression's value",
        "data Expr = Lit Integer | Add Expr Expr | Mul Expr Expr\nf :: Expr -> Integer\n"
        "f (Lit n) = n\nf (Add a b) = f a + f b\nf (Mul a b) = f a * f b\n",
        "data Expr = Lit Integer | Add Expr Expr | Mul Expr Expr\nf :: Expr -> Integer\n"
        "f e = case e of\n  Lit n -> n\n  Add a b -> f b + f a\n  Mul a b -> f b * f a\n",
        "lemma (Lit _) = trivial\nlemma (Add a b) = lemma a ? lemma b\nlemma (Mul a b) = lemma a ? lemma b\n",
    ),
    honest(
        "a polymorphic tree",
        "data Tree a = Leaf | Node (Tree a) a (Tree a)\nf :: Tree a -> Tree a\nf t = flip2 (flip2 t)\n"
        "flip2 :: Tree a -> Tree a\nflip2 Leaf = Leaf\nflip2 (Node l x r) = Node (flip2 r) x (flip2 l)\n",
        "data Tree a = Leaf | Node (Tree a) a (Tree a)\nf :: Tree a -> Tree a\nf t = t\n",
        "lemma Leaf = trivial\nlemma (Node l _ r) = lemma l ? lemma r\n",
    ),
    honest(
        "a result that is a Nat",
        "f :: [a] -> Bool\nf xs = size xs >= 0\nsize :: [a] -> Integer\nsize [] = 0\nsize (_:xs) = 1 + size xs\n",
        "f :: [a] -> Bool\nf _ = True\n",
        "{-@ size :: xs:[a] -> Nat @-}\nlemma xs = trivial ? size xs\n",
    ),
    honest(
        "a lemma with a condition",
        "f :: Integer -> Integer\nf x = if x > 3 then g x else 0\ng :: Integer -> Integer\n"
        "g x = if x > 2 then x + x else 7\n",
        "f :: Integer -> Integer\nf x = if x > 3 then 2 * x else 0\n",
        """
{-@ large :: x:{v:Integer | v > 3} -> { g x == 2 * x } @-}
large :: Integer -> Proof
large _ = trivial
lemma x = if x > 3 then large x else trivial
""",
    ),
    honest(
        "a statement with an implication",
        "f :: Integer -> Integer\nf x = if x > 3 then g x else 0\ng :: Integer -> Integer\n"
        "g x = if x > 2 then x + x else 7\n",
        "f :: Integer -> Integer\nf x = if x > 3 then 2 * x else 0\n",
        """
{-@ large :: x:Integer -> { x > 3 => g x == 2 * x } @-}
large :: Integer -> Proof
large _ = trivial
lemma x = large x
""",
    ),
    honest(
        "guards over lines",
        "f :: Integer -> Integer -> Integer\nf a b\n  | a > b\n  = a\n  | otherwise\n  = b\n",
        "f :: Integer -> Integer -> Integer\nf a b = if b >= a then b else a\n",
        "lemma _ _ = trivial\n",
    ),
]
