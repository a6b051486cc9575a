"""The judge of Python programs."""
