"""A run: its config, its folder, its checkpoints, and who is told about its metrics."""
