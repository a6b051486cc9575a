"""Where this package meets others. Each module imports its peer, and is imported by it alone."""

from sparring.core.plugin import Plugin

plugin = Plugin("bridges", package=__name__, bridges={})
