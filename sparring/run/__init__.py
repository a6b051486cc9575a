"""A run: its config, its folder, its checkpoints, and where its metrics go."""
