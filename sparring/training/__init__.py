"""The loop and what it drives: state, jobs, lessons, opponents, schedules."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "training",
    package=__name__,
    teachers={"credit": "sparring.training.lessons:Teacher"},
    report=["sparring.view.imitation:section"],
)
