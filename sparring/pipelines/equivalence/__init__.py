"""Semantic equivalence: Alice rewrites a program, a checker rules, Bob judges."""
