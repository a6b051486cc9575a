"""Checkers of claims about two programs, in Python and Haskell."""
