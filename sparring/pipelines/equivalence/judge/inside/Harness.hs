{-# LANGUAGE DefaultSignatures, FlexibleContexts, FlexibleInstances, ScopedTypeVariables,
             TypeOperators #-}
-- What every judged pair of functions is run by: how values are drawn at random, which values are
-- worth trying first, how a value is written so that unlike values are written unlike, and what a
-- call comes to.
module Harness
  ( Value (..), Inputs (..), Hints (..), Generic
  , report, attack, both
  ) where

import Control.Exception
import Control.Monad (forM_)
import Data.Char (isUpper, ord)
import Data.Complex (Complex (..))
import Data.Int
import Data.List (intercalate, nub)
import qualified Data.IntMap as IntMap
import qualified Data.IntSet as IntSet
import qualified Data.List.NonEmpty as NonEmpty
import qualified Data.Map as Map
import qualified Data.Sequence as Seq
import qualified Data.Set as Set
import Data.Foldable (toList)
import Data.Ratio
import Data.Typeable (typeOf)
import Data.Word
import GHC.Generics
import Numeric (showHex)
import Numeric.Natural (Natural)
import System.CPUTime (getCPUTime)
import System.Exit (ExitCode (..))
import System.IO
import System.Posix.Process (exitImmediately, forkProcess, getProcessStatus, ProcessStatus (..))
import System.Posix.Resource
import System.Posix.Signals (scheduleAlarm)
import System.Timeout (timeout)
import Test.QuickCheck.Gen
import Test.QuickCheck.Random (mkQCGen)

-- Constants of the two programs: where they compare with 17, 16 and 18 are worth trying.
-- `sought` are numbers worked out from them, all of which a thorough attack tries.
data Hints = Hints
  { numbers :: [Integer], fractions :: [Double], strings :: [String], sought :: [Integer] }

class Value a where
  draw :: Hints -> Gen a
  edges :: Hints -> [a]
  write :: Int -> a -> ShowS
  drawList :: Hints -> Gen [a]
  drawList h = oneof [scale (min 30) (listOf (draw h)), sizes h >>= \n -> vectorOf n (resize 4 (draw h))]
  edgeLists :: Hints -> [[a]]
  edgeLists h = [[]] ++ [[x] | x <- take 6 es] ++ [[x, y] | (x, y) <- zip es (drop 1 es)]
    ++ [[x, x] | x <- take 3 es] ++ [take 5 es, reverse (take 5 es)]
    where es = edges h
  writeList :: [a] -> ShowS
  writeList xs = showChar '[' . commas (map (write 0) xs) . showChar ']'

  default draw :: (Generic a, GValue (Rep a)) => Hints -> Gen a
  draw h = sized (\n -> to <$> gdraw h n)
  default edges :: (Generic a, GValue (Rep a)) => Hints -> [a]
  edges h = take 12 (map to (gedges h (3 :: Int)))
  default write :: (Generic a, GValue (Rep a)) => Int -> a -> ShowS
  write d = gwrite d . from

commas :: [ShowS] -> ShowS
commas [] = id
commas (x : xs) = x . foldr (\y rest -> showString ", " . y . rest) id xs

-- Structure by structure, whatever the program's own instances say.
class GValue f where
  gdraw :: Hints -> Int -> Gen (f p)
  gedges :: Hints -> Int -> [f p]
  gwrite :: Int -> f p -> ShowS

instance GValue f => GValue (D1 c f) where
  gdraw h n = M1 <$> gdraw h n
  gedges h n = map M1 (gedges h n)
  gwrite d (M1 x) = gwrite d x

instance (GValue f, GValue g) => GValue (f :+: g) where
  gdraw h n
    | n <= 1 = L1 <$> gdraw h 0
    | otherwise = oneof [L1 <$> gdraw h n, R1 <$> gdraw h n]
  gedges h n
    | n <= 0 = take 1 (map L1 (gedges h 0))
    | otherwise = map L1 (gedges h n) ++ map R1 (gedges h n)
  gwrite d (L1 x) = gwrite d x
  gwrite d (R1 x) = gwrite d x

instance (Constructor c, GFields f) => GValue (C1 c f) where
  gdraw h n = M1 <$> gfdraw h (n `div` 2)
  gedges h n = map M1 (take 4 (gfedges h (n - 1)))
  gwrite d m@(M1 x) = case gfwrite x of
    [] -> showString name
    fields -> showParen (d > 10) (showString name . foldr (\f r -> showChar ' ' . f . r) id fields)
    where name = let n = conName m in if isUpper (head n) then n else "(" ++ n ++ ")"

class GFields f where
  gfdraw :: Hints -> Int -> Gen (f p)
  gfedges :: Hints -> Int -> [f p]
  gfwrite :: f p -> [ShowS]

instance GFields U1 where
  gfdraw _ _ = pure U1
  gfedges _ _ = [U1]
  gfwrite U1 = []

instance (GFields f, GFields g) => GFields (f :*: g) where
  gfdraw h n = (:*:) <$> gfdraw h n <*> gfdraw h n
  gfedges h n = zipWith (:*:) (cycle' (gfedges h n)) (gfedges h n)
    where cycle' xs = take 4 (cycle xs)
  gfwrite (x :*: y) = gfwrite x ++ gfwrite y

instance Value a => GFields (S1 c (K1 i a)) where
  gfdraw h n = M1 . K1 <$> resize n (draw h)
  gfedges h n = if n < 0 then [] else map (M1 . K1) (take 4 (edges h))
  gfwrite (M1 (K1 x)) = [write 11 x]

whole :: (Integral a) => [Integer] -> Hints -> [a]
whole extra h = map fromInteger (nub ([0, 1, -1, 2, -2, 3, 10, -7] ++ near h ++ extra) ++ sought h)

-- Lengths of lists: the programs' own constants, where those can be lengths.
sizes :: Hints -> Gen Int
sizes h = elements (2 : 3 : [fromInteger n | n <- near h, n >= 0, n <= 60])

near :: Hints -> [Integer]
near h = take 40 (concat [[n, n + 1, n - 1, negate n] | n <- numbers h])

wanted :: Hints -> [Integer]
wanted h = near h ++ sought h

small :: [Integer]
small = [4 .. 60] ++ [-3, -4 .. -12]

bounded :: forall a. (Bounded a, Integral a) => Hints -> [a]
bounded h = map fromInteger (filter fits (nub ([0, 1, -1, 2, -2, 3, 10, -7] ++ near h ++ ends) ++ sought h))
  where
    (low, high) = (toInteger (minBound :: a), toInteger (maxBound :: a))
    ends = [low, low + 1, high, high - 1, high `div` 2, high `div` 2 + 1, low `div` 2] ++ small
    fits n = n >= low && n <= high

drawBounded :: forall a. (Bounded a, Integral a) => Hints -> Gen a
drawBounded h = frequency
  [ (5, sized (\n -> fromInteger <$> choose (negate' n, toInteger n)))
  , (2, fromInteger <$> choose (toInteger (minBound :: a), toInteger (maxBound :: a)))
  , (1, elements (bounded h)), (3, elements (0 : map fromInteger (filter fits (wanted h)))) ]
  where
    fits n = n >= toInteger (minBound :: a) && n <= toInteger (maxBound :: a)
    negate' n = if (minBound :: a) < 0 then negate (toInteger n) else 0

writeWhole :: Integral a => Int -> a -> ShowS
writeWhole _ n = showParen (i < 0) (shows i) where i = toInteger n

instance Value Integer where
  draw h = frequency
    [ (6, sized (\n -> choose (negate (toInteger n), toInteger n)))
    , (1, choose (negate (2 ^ (70 :: Int)), 2 ^ (70 :: Int)))
    , (1, elements (edges h)), (3, elements (0 : wanted h)) ]
  edges = whole ([12, 100, 1000, -1000, 2 ^ (63 :: Int), negate (2 ^ (63 :: Int)) - 1, 2 ^ (64 :: Int)] ++ small)
  write = writeWhole

instance Value Natural where
  draw h = fromInteger . abs <$> draw h
  edges h = map fromInteger (filter (>= 0) (edges h))
  write = writeWhole

instance Value Int where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Int8 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Int16 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Int32 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Int64 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Word where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Word8 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Word16 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Word32 where { draw = drawBounded; edges = bounded; write = writeWhole }
instance Value Word64 where { draw = drawBounded; edges = bounded; write = writeWhole }

real :: (RealFloat a) => Hints -> [a]
real h = [0, 1, -1, 0.5, 2.5, -0.0, 0 / 0, 1 / 0, -1 / 0, 0.1, 0.2, 0.3, 1e-9, 1e16, -1e16, 1e300]
  ++ concat [[realToFrac x, negate (realToFrac x)] | x <- take 20 (fractions h)]

drawReal :: RealFloat a => Hints -> Gen a
drawReal h = frequency
  [ (4, sized (\n -> (/ 8) . fromIntegral <$> choose (-8 * n, 8 * n)))
  , (3, realToFrac <$> (choose (-1000, 1000) :: Gen Double))
  , (1, encodeFloat <$> choose (-2 ^ (50 :: Int), 2 ^ (50 :: Int)) <*> choose (-100, 100))
  , (2, elements (real h)) ]

-- Every NaN is the same; 0.0 and -0.0 are not.
writeReal :: RealFloat a => (Int -> a -> ShowS) -> Int -> a -> ShowS
writeReal plain _ x
  | isNaN x = showString "(0/0)"
  | isInfinite x = showString (if x > 0 then "(1/0)" else "(-1/0)")
  | otherwise = showParen (x < 0 || isNegativeZero x) (plain 0 x)

instance Value Double where { draw = drawReal; edges = real; write = writeReal showsPrec }
instance Value Float where { draw = drawReal; edges = real; write = writeReal showsPrec }

instance (Integral a, Value a) => Value (Ratio a) where
  draw h = (\a b -> a % (if b == 0 then 1 else b)) <$> draw h <*> draw h
  edges h = [a % b | (a, b) <- zip (edges h) (filter (/= 0) (edges h))]
  write _ r = showParen True (write 0 (numerator r) . showString " % " . write 0 (denominator r))

instance Value a => Value (Complex a) where
  draw h = (:+) <$> draw h <*> draw h
  edges h = zipWith (:+) (edges h) (reverse (edges h))
  write _ (a :+ b) = showParen True (write 11 a . showString " :+ " . write 11 b)

instance Value Char where
  draw h = frequency
    [(6, choose ('a', 'f')), (2, choose (' ', '~')), (1, choose ('0', '9')), (1, elements (edges h)), (1, choose ('\0', '\x2ff'))]
  edges h = nub (take 12 (concat (strings h)) ++ "a zZA09_-\n\té\1234([")
  write _ c = shows c
  drawList h = frequency
    ((6, scale (min 30) (listOf (draw h))) : (2, sizes h >>= \n -> vectorOf n (draw h))
      : concat [[(2, elements given), (4, scale (min 12) (listOf (elements (concat given))))]
               | let given = filter (not . null) (strings h), not (null given)]
      ++ [(1, unwords <$> scale (min 4) (listOf (listOf1 (choose ('a', 'c')))))])
  edgeLists h = nub (["", "a", " ", "ab", "ba", "aa", "aba", "a b", "A", "12", "0", "-1", " a ", "\n",
    "hello world", "(()", "aAbB"] ++ take 20 (strings h ++ map (drop 1) (strings h)) ++ pairs)
    where
      known = take 4 (nub (concat (strings h)))
      pairs = [[a, b] | a <- known, b <- known] ++ [[a, b, a, b] | a <- known, b <- known]
  writeList s = shows (s :: String)

instance Value Bool
instance Value Ordering
instance Value () where { draw _ = pure (); edges _ = [()]; write _ () = showString "()" }
instance Value a => Value (Maybe a)
instance (Value a, Value b) => Value (Either a b)

instance Value a => Value [a] where
  draw h = oneof [drawList h, drawList h, drawList h, few]
    where few = do { xs <- resize 4 (vectorOf 2 (draw h)); scale (min 12) (listOf (elements xs)) }
  edges h = edgeLists h
  write _ = writeList

instance Value a => Value (NonEmpty.NonEmpty a) where
  draw h = (NonEmpty.:|) <$> draw h <*> drawList h
  edges h = [x NonEmpty.:| xs | (x : xs) <- edgeLists h]
  write d (x NonEmpty.:| xs) = showParen (d > 5) (write 6 x . showString " :| " . writeList xs)

listed :: Value a => Int -> [a] -> ShowS
listed d xs = showParen (d > 10) (showString "fromList " . writeList xs)

instance (Ord a, Value a) => Value (Set.Set a) where
  draw h = Set.fromList <$> drawList h
  edges h = map Set.fromList (edgeLists h)
  write d = listed d . Set.toList

instance (Ord k, Value k, Value v) => Value (Map.Map k v) where
  draw h = Map.fromList <$> drawList h
  edges h = map Map.fromList (edgeLists h)
  write d = listed d . Map.toList

instance Value IntSet.IntSet where
  draw h = IntSet.fromList <$> drawList h
  edges h = map IntSet.fromList (edgeLists h)
  write d = listed d . IntSet.toList

instance Value v => Value (IntMap.IntMap v) where
  draw h = IntMap.fromList <$> drawList h
  edges h = map IntMap.fromList (edgeLists h)
  write d = listed d . IntMap.toList

instance Value a => Value (Seq.Seq a) where
  draw h = Seq.fromList <$> drawList h
  edges h = map Seq.fromList (edgeLists h)
  write d = listed d . toList

tuple :: [ShowS] -> ShowS
tuple xs = showParen True (commas xs)

instance (Value a, Value b) => Value (a, b) where
  draw h = (,) <$> draw h <*> draw h
  edges h = diagonal (edges h) (edges h)
  write _ (a, b) = tuple [write 0 a, write 0 b]

instance (Value a, Value b, Value c) => Value (a, b, c) where
  draw h = (,,) <$> draw h <*> draw h <*> draw h
  edges h = [(a, b, c) | (a, (b, c)) <- diagonal (edges h) (edges h)]
  write _ (a, b, c) = tuple [write 0 a, write 0 b, write 0 c]

instance (Value a, Value b, Value c, Value d) => Value (a, b, c, d) where
  draw h = (,,,) <$> draw h <*> draw h <*> draw h <*> draw h
  edges h = [(a, b, c, d) | ((a, b), (c, d)) <- diagonal (edges h) (edges h)]
  write _ (a, b, c, d) = tuple [write 0 a, write 0 b, write 0 c, write 0 d]

instance (Value a, Value b, Value c, Value d, Value e) => Value (a, b, c, d, e) where
  draw h = (,,,,) <$> draw h <*> draw h <*> draw h <*> draw h <*> draw h
  edges h = [(a, b, c, d, e) | ((a, b), (c, d, e)) <- diagonal (edges h) (edges h)]
  write _ (a, b, c, d, e) = tuple [write 0 a, write 0 b, write 0 c, write 0 d, write 0 e]

-- Pairs in the order of how far both are from the front.
diagonal :: [a] -> [b] -> [(a, b)]
diagonal xs ys = go [] xs
  where
    go seen (x : rest) = let now = x : seen in zip now ys ++ go now rest
    go seen [] = concat [zip seen (drop k ys) | k <- [1 .. length ys - 1]]

-- The arguments of a call, as nested pairs that end in ().
class Inputs t where
  drawInputs :: Hints -> Gen t
  edgeInputs :: Hints -> [t]
  writeInputs :: t -> [String]

instance Inputs () where
  drawInputs _ = pure ()
  edgeInputs _ = [()]
  writeInputs () = []

instance (Value a, Inputs t) => Inputs (a, t) where
  drawInputs h = (,) <$> frequency [(4, draw h), (1, elements (edges h))] <*> drawInputs h
  edgeInputs h = diagonal (edges h) (edgeInputs h)
  writeInputs (x, t) = write 11 x "" : writeInputs t

-- What a call comes to. A time-out, a full memory or a stack overflow is no outcome.
data Outcome = Gives String | Raises String | Nothing' String deriving Eq

mostText, caseMicros :: Int
mostText = 200000
caseMicros = 100000

outcome :: Value r => Int -> r -> IO Outcome
outcome micros result = do
  let text = write 0 result ""
  tried <- timeout micros (try (evaluate (if length (take mostText text) < mostText then text else "")))
  pure (case tried of
    Nothing -> Nothing' "time-out"
    Just (Right "") -> Nothing' "output limit"
    Just (Right done) -> Gives done
    Just (Left problem) -> failure problem)

failure :: SomeException -> Outcome
failure problem@(SomeException inner)
  | Just (e :: AsyncException) <- fromException problem =
      Nothing' (if e `elem` [StackOverflow, HeapOverflow] then "memory" else "time-out")
  | Just (_ :: SomeAsyncException) <- fromException problem = Nothing' "time-out"
  | Just (_ :: NonTermination) <- fromException problem = Nothing' "time-out"
  | Just (e :: ArithException) <- fromException problem = Raises ("ArithException: " ++ show e)
  | otherwise = Raises (show (typeOf inner))

-- P and Q on one input: what each comes to.
both :: Value r => Int -> t -> (t -> r) -> (t -> r) -> ([String] -> IO ()) -> IO [String]
both micros t p q _ = do
  a <- outcome micros (p t)
  b <- outcome micros (q t)
  pure (["ran"] ++ shown a ++ shown b)

shown :: Outcome -> [String]
shown (Gives text) = ["value", text]
shown (Raises name) = ["raises", name]
shown (Nothing' why) = ["none", why]

-- Edge cases and random inputs of growing size in turns, until the two differ or time is up. An
-- input that P does not answer soon tells nothing, and too many of those end the attack; Q has much
-- longer for what P answered. Before each call it is said whose it is: should one hang beyond
-- recall, that is known, and the next attack goes on after it.
attack :: forall t r. (Inputs t, Value r)
  => ([String] -> IO ()) -> Hints -> Int -> Int -> Int -> Integer -> (t -> r) -> (t -> r) -> IO [String]
attack say hints seed from' cases budgetMs p q = do
  start <- getCPUTime
  let
    drawn = [unGen (drawInputs hints) (mkQCGen (seed + n)) (1 + n * 50 `div` cases) | n <- [1 .. cases]]
    finished done silent = pure ["agree", show done, show silent]
    go :: Int -> Int -> [(Int, t)] -> IO [String]
    go done silent [] = finished done silent
    go done silent ((k, t) : rest) = do
      now <- getCPUTime
      if (now - start) `div` 1000000000 > budgetMs || silent > 20 then finished done silent else do
        say ["at", show k, show done, "P"]
        a <- outcome caseMicros (p t)
        case a of
          Nothing' _ -> go done (silent + 1) rest
          _ -> do
            say ["at", show k, show done, "Q", unwords (writeInputs t)]
            b <- outcome (20 * caseMicros) (q t)
            case b of
              Nothing' why -> pure (["unanswered", unwords (writeInputs t), why] ++ shown a)
              _ | a == b -> go (done + 1) silent rest
                | otherwise -> pure (["refuted", unwords (writeInputs t)] ++ shown a ++ shown b)
  go 0 0 (drop from' (zip [0 ..] (inTurns (take (cases `div` 2) (edgeInputs hints)) drawn)))

inTurns :: [a] -> [a] -> [a]
inTurns (x : xs) (y : ys) = x : y : inTurns xs ys
inTurns [] ys = ys
inTurns xs [] = xs

json :: String -> String
json text = "\"" ++ concatMap escape text ++ "\""
  where
    escape '"' = "\\\""
    escape '\\' = "\\\\"
    escape c
      | ord c >= 32 && ord c < 127 = [c]
      | ord c > 0xffff = concatMap unit [0xd800 + (ord c - 0x10000) `div` 0x400, 0xdc00 + (ord c - 0x10000) `mod` 0x400]
      | otherwise = unit (ord c)
    unit n = let digits = showHex n "" in "\\u" ++ replicate (4 - length digits) '0' ++ digits

-- In a fork of this process, with limits of its own; what became of it is said after the mark.
report :: String -> Int -> (([String] -> IO ()) -> IO [String]) -> IO ()
report mark seconds action = do
  hFlush stdout
  child <- forkProcess $ do
    hSetBuffering stdout (BlockBuffering Nothing)  -- GHCi's own writes one character at a time
    forM_ [(ResourceCPUTime, toInteger seconds), (ResourceFileSize, 0), (ResourceCoreFileSize, 0)] $
      \(what, most) -> setResourceLimit what (ResourceLimits (ResourceLimit most) (ResourceLimit most))
    _ <- scheduleAlarm (4 * seconds)
    tried <- try (action say)
    let done = case tried of
          Right parts -> parts
          Left (problem :: SomeException) -> case failure problem of
            Raises name -> ["broken", name]
            other -> shown other
    say done
    exitImmediately ExitSuccess
  status <- getProcessStatus True False child
  case status of
    Just (Exited ExitSuccess) -> pure ()
    Just (Exited _) -> say ["died", "memory"]
    _ -> say ["died", "time-out"]
  where
    say parts = do
      let line = mark ++ "[" ++ intercalate "," (map json parts) ++ "]"
      _ <- evaluate (length line)  -- all of it before any of it is written
      putStrLn line
      hFlush stdout
