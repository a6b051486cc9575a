"""A learner made of several processes."""
