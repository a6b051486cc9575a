"""What rules: judges turn a program, a proof or an answer into a verdict."""
