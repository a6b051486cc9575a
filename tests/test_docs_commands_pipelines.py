"""Every command in the documentation is run: the pages on pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_commands import PIPELINES, Trained, folder, name_of, pages, run_page, trained, url

__all__ = ["folder", "trained", "url"]  # fixtures


@pytest.mark.parametrize("page", pages(*PIPELINES), ids=name_of)
def test_every_command_of_a_page_runs(page: Path, folder: Path, trained: Trained, url: str) -> None:
    run_page(page, trained, url)
