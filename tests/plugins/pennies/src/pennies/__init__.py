"""Matching pennies as a package of its own."""

from sparring import Plugin

plugin = Plugin(
    "pennies",
    package=__name__,
    games={"pennies": "pennies.game:MatchingPennies"},
    credit={"halved": "pennies.credit:make_halved"},
    teachers={"winners": "pennies.credit:Winners"},
    evaluations={"coins": "pennies.measure:evaluation"},
    report=["pennies.measure:section"],
    commands=["pennies.measure:add_commands"],
    config={"coins": "pennies.measure:CoinsConfig"},
)
