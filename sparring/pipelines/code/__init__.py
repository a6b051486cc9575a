"""Code games and the benchmarks MBPP and HumanEval."""
