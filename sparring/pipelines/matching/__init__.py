"""A cooperative matching game, played in rounds."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "matching",
    package=__name__,
    games={"matching": "sparring.pipelines.matching.game:MatchingGame"},
    teachers={
        "rounds": "sparring.pipelines.matching.rounds:Rounds",
        "recorded": "sparring.pipelines.matching.rounds:Recorded",
    },
    measures=["sparring.pipelines.matching.measures:MEASURES"],
    report=["sparring.pipelines.matching.report:section"],
    config={"rounds": "sparring.pipelines.matching.config:RoundsConfig"},
)
