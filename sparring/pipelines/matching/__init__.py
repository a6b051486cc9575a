"""A cooperative matching game, played in rounds."""
