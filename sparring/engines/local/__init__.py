"""The embedded engine: generates in this process with the learner's own weights."""
