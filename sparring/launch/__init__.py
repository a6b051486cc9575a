"""Starting a run on several processes or machines."""
