"""Where this package meets others. Each module imports its peer, and is imported by it alone."""

from sparring.core.plugin import Bridge, Plugin

plugin = Plugin(
    "bridges",
    package=__name__,
    bridges={
        "textarena": Bridge(
            "textarena",
            "pip install 'sparring[textarena]'",
            game="sparring.bridges.textarena:game",
            listing="sparring.bridges.textarena:listing",
        ),
    },
)
