"""Credit turns rewards into advantages, and episodes into samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparring.core.plugin import Plugin, find

if TYPE_CHECKING:
    from sparring.credit.credit import Credit
    from sparring.run.config import CreditConfig

plugin = Plugin(
    "credit",
    package=__name__,
    credit={
        "role_baseline": "sparring.credit.role_baseline:make",
        "prompt_baseline": "sparring.credit.prompt_baseline:make",
        "group_relative": "sparring.credit.group_relative:make",
        "leave_one_out": "sparring.credit.group_relative:make",
        "gae": "sparring.credit.gae:make",
    },
)


def make_credit(config: CreditConfig) -> Credit:
    credit: Credit = find("credit", config.kind)(config)
    return credit
