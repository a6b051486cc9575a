"""Pipelines that go in phases, each from files to files: sft, rollouts, preferences, dpo, eval."""
