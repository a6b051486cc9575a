"""Research pipelines, each in a folder of its own and registered as a plug-in."""
