"""Every command in the documentation is run: the pages that the other files leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_commands import (
    NOT_HERE,
    WITH_COMMANDS,
    Trained,
    commands,
    folder,
    name_of,
    other_pages,
    run_page,
    trained,
    url,
)

__all__ = ["folder", "trained", "url"]  # fixtures


@pytest.mark.parametrize("page", other_pages(), ids=name_of)
def test_every_command_of_a_page_runs(page: Path, folder: Path, trained: Trained, url: str) -> None:
    run_page(page, trained, url)


def test_what_is_not_run_is_still_in_the_pages() -> None:
    said = [command for page in WITH_COMMANDS for command in commands(page)]
    for start in NOT_HERE:
        assert any(command.startswith(start) for command in said), f"no page says {start!r}"
    assert sum(command.startswith("sparring ") for command in said) > 60
