"""Semantic equivalence: Alice rewrites a program, a checker rules, Bob judges."""

from sparring.core.plugin import Plugin

plugin = Plugin(
    "equivalence",
    package=__name__,
    games={"equivalence": "sparring.pipelines.equivalence.game:Equivalence"},
    teachers={"equivalence": "sparring.pipelines.equivalence.teacher:EquivalenceTeacher"},
    evaluations={"pairs": "sparring.pipelines.equivalence.exam:evaluation"},
    checks=["sparring.pipelines.equivalence.checks:check"],
    measures=["sparring.pipelines.equivalence.report:MEASURES"],
    report=["sparring.pipelines.equivalence.report:section"],
    commands=["sparring.pipelines.equivalence.commands:add_commands"],
    config={
        "equivalence": "sparring.pipelines.equivalence.config:EquivalenceConfig",
        "pairs": "sparring.pipelines.equivalence.config:PairsConfig",
    },
)
