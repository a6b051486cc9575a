"""Where this package meets others. Each module imports its peer, and is imported by it alone."""

from sparring.core.plugin import Bridge, Plugin

plugin = Plugin(
    "bridges",
    package=__name__,
    bridges={
        "openspiel": Bridge(
            "pyspiel",
            "pip install 'sparring[openspiel]'",
            game="sparring.bridges.openspiel:open_game",
            listing="sparring.bridges.openspiel_loading:listing",
            solver="sparring.bridges.openspiel:cfr_average",
        ),
        "gym": Bridge(
            "reasoning_gym",
            "pip install 'sparring[gym]'",
            game="sparring.bridges.gym:game",
            listing="sparring.bridges.gym:listing",
        ),
        "verifiers": Bridge(
            "verifiers",
            "pip install 'sparring[verifiers]'",
            game="sparring.bridges.verifiers:game",
            listing="sparring.bridges.verifiers:listing",
        ),
        "textarena": Bridge(
            "textarena",
            "pip install 'sparring[textarena]'",
            game="sparring.bridges.textarena:game",
            listing="sparring.bridges.textarena:listing",
        ),
    },
)
