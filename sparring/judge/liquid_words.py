"""What a proof may be made of. Liquid Haskell believes much that is false (docs/haskell.md); what
is not listed here it never sees."""

from __future__ import annotations

TYPES = frozenset({"Int", "Integer", "Bool", "Char", "String", "Maybe", "Either"})
CONSTRUCTORS = frozenset({"True", "False", "Just", "Nothing", "Left", "Right"})
CLASSES = frozenset({"Eq", "Ord", "Show"})  # that data types may derive
ARITHMETIC = frozenset({"+", "-", "*", "negate"})
COMPARISON = frozenset({"==", "/=", "<", "<=", ">", ">="})
LOGIC = frozenset({"&&", "||", "not", "otherwise", ".", "$"})
DIVISION = frozenset({"div", "mod"})
VALUES = ARITHMETIC | COMPARISON | LOGIC | DIVISION
COMBINATORS = frozenset({"trivial", "===", "***", "?", "QED"})
SYNTAX = frozenset({"=", "|", "->", ":", "@"})
PROGRAM_WORDS = frozenset({"if", "then", "else", "case", "of", "let", "in", "where", "_"})
PROOF_WORDS = frozenset({"if", "then", "else", "case", "of", "_"})
STATEMENT = (
    ARITHMETIC | COMPARISON | frozenset({"&&", "||", "not", "=>", "<=>", "=", ":", "len"})
    | frozenset({"if", "then", "else"})
)  # fmt: skip
# Names that mean something where a proof is checked, so that nobody may give them to anything.
_RESERVED = """
    abs acos acosh all and any appendFile asTypeOf asin asinh atan atan2 atanh break ceiling
    compare concat concatMap const cos cosh curry cycle decodeFloat div divMod drop dropWhile either
    elem encodeFloat enumFrom enumFromThen enumFromThenTo enumFromTo error errorWithoutStackTrace
    even exp exponent fail filter flip floatDigits floatRadix floatRange floor fmap foldMap foldl
    foldl1 foldr foldr1 fromEnum fromInteger fromIntegral fromRational fst gcd getChar getContents
    getLine head id init interact ioError isDenormalized isIEEE isInfinite isNaN isNegativeZero
    iterate last lcm length lex lines log logBase lookup map mapM mapM_ mappend max maxBound maximum
    maybe mconcat mempty min minBound minimum mod negate not notElem null odd or otherwise pi pred
    print product properFraction pure putChar putStr putStrLn quot quotRem read readFile readIO
    readList readLn readParen reads readsPrec realToFrac recip rem repeat replicate return reverse
    round scaleFloat scanl scanl1 scanr scanr1 seq sequence sequenceA sequence_ show showChar
    showList showParen showString shows showsPrec significand signum sin sinh snd span splitAt sqrt
    subtract succ sum tail take takeWhile tan tanh toEnum toInteger toRational traverse truncate
    uncurry undefined unlines until unwords unzip unzip3 userError words writeFile zip zip3 zipWith
    zipWith3
    trivial unreachable impossible withProof toProof isAdmit cast castWithTheorem withTheorem
    byTheorem admit
    assume assumes lazy lazyvar ignore reflect inline measure embed qualif expression predicate type
    invariant using decrease define rewrite rewriteWith autosize automatic bound class data infix
    infixl infixr instance local newtype relational variance axiomatize hmeasure lemma true false
    """
RESERVED = frozenset(_RESERVED.split())
