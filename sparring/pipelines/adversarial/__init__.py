"""A generator reasoning in stages against a discriminator that writes tests."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "adversarial",
    package=__name__,
    games={"adversarial_tests": "sparring.pipelines.adversarial.game:AdversarialTests"},
    readers={".json": "sparring.pipelines.adversarial.problems:read_problems"},
    problems={"lists": "sparring.pipelines.adversarial.list_problems:problems"},
    closings=["sparring.pipelines.adversarial.crossplay:closing"],
    measures=["sparring.pipelines.adversarial.report:MEASURES"],
    report=["sparring.pipelines.adversarial.report:section"],
    commands=["sparring.pipelines.adversarial.commands:add_commands"],
)
