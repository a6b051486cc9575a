"""How good is it: matches, exact measures, benchmarks."""
