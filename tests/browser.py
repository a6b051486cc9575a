"""A real Chromium for tests, driven by Playwright; where there is none, tests are skipped and say
why. No page may ask anything of another machine, and none may report an error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), ""
)
OWN = ("127.0.0.1", "")

# Of every table: heads and cells of a column whose text is not set to the same side.
_CROOKED = """() => [...document.querySelectorAll("table")].flatMap((table) => {
  const grid = [];
  [...table.rows].forEach((row, y) => {
    let x = 0;
    [...row.cells].forEach((cell) => {
      while (grid[y]?.[x]) x++;
      for (let j = 0; j < cell.rowSpan; j++)
        for (let i = 0; i < cell.colSpan; i++) (grid[y + j] ||= [])[x + i] = cell;
    });
  });
  const side = (cell) => (getComputedStyle(cell).textAlign === "right" ? "right" : "left");
  const edge = (cell) => { // of the text, not of its cell
    const text = document.createRange();
    text.selectNodeContents(cell);
    return text.getBoundingClientRect()[side(cell)];
  };
  const head = grid[0] || [];
  return grid.slice(1).flatMap((row) => row.map((cell, x) => [cell, head[x]])
    .filter(([cell, top]) => top && top.colSpan === 1 && cell.colSpan === 1)
    .filter((pair) => pair.every((c) => c.textContent.trim() && !c.querySelector("svg")))
    .filter(([cell, top]) => side(cell) !== side(top) || Math.abs(edge(cell) - edge(top)) > 1)
    .map(([cell, top]) => `${top.textContent}: ${cell.textContent}`));
})"""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where it cannot be had."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if not CHROMIUM:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Any, **options: Any) -> Iterator[Any]:
    """A page whose errors and whose requests to other machines fail the test when it is closed."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}, **options).new_page()
    problems = problems_of(page)
    try:
        yield page
        assert problems == []
    finally:
        page.context.close()


def problems_of(page: Any) -> list[str]:
    """From now on: errors, and requests to other machines."""
    problems: list[str] = []
    page.set_default_timeout(90_000)  # a busy machine takes long to import a tokenizer

    def check(route: Any) -> None:
        if urlsplit(route.request.url).hostname in (None, *OWN):
            route.continue_()
        else:
            problems.append(f"asked {route.request.url}")
            route.abort()

    page.route("**/*", check)
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems


def assert_tables_align(*reports: Path) -> None:
    """In a browser, the heads and cells of every column of reports stand under each other, and on
    a phone every column can be reached. Where there is no browser, the tests of the view say so."""
    if not CHROMIUM or find_spec("playwright") is None:
        return
    with chromium() as browser, page_of(browser) as page:
        for report in reports:
            page.set_viewport_size({"width": 1200, "height": 900})
            page.goto(report.resolve().as_uri())
            page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            assert page.evaluate(_CROOKED) == [], report
            page.set_viewport_size({"width": 390, "height": 844})
            assert_reachable(page)


def assert_reachable(page: Any) -> None:
    """The page itself is no wider than the screen: what is wider scrolls within."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    hidden = page.evaluate("""() => [...document.querySelectorAll("table")].filter((table) => {
      let box = table.parentElement;
      const scrolls = (node) => getComputedStyle(node).overflowX === "auto";
      while (box !== document.body && !scrolls(box)) box = box.parentElement;
      return table.getBoundingClientRect().width > 390 && box === document.body;
    }).length""")
    assert hidden == 0
