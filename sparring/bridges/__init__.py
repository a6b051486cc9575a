"""Where this package meets others. Each module imports its peer, and is imported by it alone."""
