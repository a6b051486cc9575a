"""Players against each other: tournaments, and the part of a report that shows a population."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "populations",
    package=__name__,
    report=["sparring.pipelines.populations.report:section"],
    commands=["sparring.pipelines.populations.commands:add_commands"],
)
