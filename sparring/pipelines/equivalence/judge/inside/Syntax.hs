{-# LANGUAGE ScopedTypeVariables #-}
-- A module as GHC's own parser reads it, so that the rules for proofs go by the very tree that the
-- compiler goes by. Every node is written as JSON: [constructor, line, child, ...].
module Syntax (trees) where

import Data.Data
import Data.List (intercalate)
import Data.Maybe (fromMaybe)
import GHC.Data.EnumSet (empty, fromList)
import GHC.Data.FastString (FastString, mkFastString, unpackFS)
import GHC.Data.StringBuffer (hGetStringBuffer)
import GHC.Driver.Session (languageExtensions)
import GHC.Parser (parseModule)
import GHC.Parser.Lexer
import GHC.Types.Name.Occurrence (OccName, occNameString)
import GHC.Types.Name.Reader (RdrName (..))
import GHC.Types.Name (getOccName)
import GHC.Types.SrcLoc
import GHC.Unit.Types (mainUnitId)
import GHC.Unit.Module.Name (ModuleName, moduleNameString)
import Numeric (showHex)

-- The trees of some files, in order; an empty text where one cannot be parsed.
trees :: [FilePath] -> ([String] -> IO ()) -> IO [String]
trees paths _ = ("trees" :) <$> mapM tree paths

tree :: FilePath -> IO String
tree path = do
  text <- hGetStringBuffer path
  let flags = mkParserFlags' empty (fromList (languageExtensions Nothing)) mainUnitId True False False True
  pure (case unP parseModule (mkPStatePure flags text (mkRealSrcLoc (mkFastString path) 1 1)) of
    POk _ found -> node 0 found ""
    PFailed _ -> "")

node :: forall a. Data a => Int -> a -> ShowS
node line x = fromMaybe plain (leaf x)
  where
    name = showConstr (toConstr x)
    kids = [kid | (empty', kid) <- gmapQ (\c -> (showConstr (toConstr c) == "NoExtField", node line c)) x, not empty']
    plain
      | name == "L" = gmapQi 1 (node (fromMaybe line (start =<< gmapQi 0 cast x))) x
      | name == "(:)" || name == "[]" = bracketed (items x)
      | name == "(,)" = bracketed kids
      | otherwise = bracketed (quoted name : shows line : kids)
    items :: forall b. Data b => b -> [ShowS]
    items xs = case gmapQ (\c -> (node line c, items c)) xs of
      [(first, _), (_, rest)] -> first : rest
      _ -> []

start :: SrcSpan -> Maybe Int
start (RealSrcSpan s _) = Just (srcSpanStartLine s)
start _ = Nothing

-- What has no structure that the rules ask for.
leaf :: Data a => a -> Maybe ShowS
leaf x = case cast x of
  Just (found :: RdrName) -> Just (quoted (spelled found))
  Nothing -> case cast x of
    Just (found :: FastString) -> Just (quoted (unpackFS found))
    Nothing -> case cast x of
      Just (found :: OccName) -> Just (quoted (occNameString found))
      Nothing -> case cast x of
        Just (found :: ModuleName) -> Just (quoted (moduleNameString found))
        Nothing -> case cast x of
          Just (found :: Integer) -> Just (quoted (show found))
          Nothing -> case cast x of
            Just (found :: Int) -> Just (shows found)
            Nothing -> case cast x of
              Just (found :: String) -> Just (quoted found)
              Nothing -> case cast x of
                Just (found :: Char) -> Just (quoted [found])
                Nothing -> case cast x of
                  Just (_ :: SrcSpan) -> Just (showString "null")
                  Nothing -> Nothing

spelled :: RdrName -> String
spelled (Unqual name) = occNameString name
spelled (Qual m name) = moduleNameString m ++ "." ++ occNameString name
spelled (Orig _ name) = "?." ++ occNameString name
spelled (Exact name) = occNameString (getOccName name)

bracketed :: [ShowS] -> ShowS
bracketed parts = showChar '[' . foldr (.) id (commas parts) . showChar ']'
  where commas = foldr (\p rest -> p : if null rest then [] else showChar ',' : rest) []

quoted :: String -> ShowS
quoted text = showChar '"' . showString (concatMap escape text) . showChar '"'
  where
    escape c
      | c == '"' || c == '\\' = ['\\', c]
      | c >= ' ' && c < '\DEL' = [c]
      | c > '\xffff' = "\\ufffd"
      | otherwise = let digits = showHex (fromEnum c) "" in "\\u" ++ replicate (4 - length digits) '0' ++ digits
