"""The whole page: it parses, shows everything on record, lets nothing out and nothing in."""

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fake_run import write_run

from sparring.view import write_report
from sparring.view.metrics import chart_spec
from sparring.view.results import asked_with

VOID_TAGS = {"meta", "link", "br", "img", "hr", "input"}
SVG_TAGS = {"line", "path", "circle", "rect", "ellipse"}  # closed by themselves, with />


class Page(HTMLParser):
    """Collects tags, attributes and text, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SVG_TAGS, f"<{tag}/> closes nothing in HTML"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str, name: str = "") -> list[dict[str, str | None]]:
        found = [attrs for other, attrs in self.tags if other == tag]
        return [a for a in found if not name or name in (a.get("class") or "").split()]

    @property
    def charts(self) -> list[dict[str, Any]]:
        return [json.loads(a["data-chart"] or "") for _, a in self.tags if "data-chart" in a]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(run: Path) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "spiral-7")


@pytest.fixture(scope="module")
def page(full_run: Path) -> Page:
    return page_of(full_run)


def test_it_is_written_whole_in_the_run_and_leaves_nothing_else(full_run: Path) -> None:
    before = {path.name for path in full_run.iterdir()}
    path = write_report(full_run)
    assert path == full_run / "report.html"
    assert {p.name for p in full_run.iterdir()} == before | {"report.html"}
    assert path.read_text().startswith("<!doctype html>")


def test_every_metric_has_a_curve(full_run: Path, page: Page) -> None:
    lines = (full_run / "metrics.jsonl").read_text().splitlines()
    keys = {key for line in lines for key in json.loads(line)} - {"iteration"}
    shown = [k for _, a in page.tags for k in (a.get("data-metrics") or "").split()]
    assert sorted(shown) == sorted(keys)
    assert len(page.charts) == len(page.all("figure", "chart")) > 20
    assert "What stayed the same (" in page.words  # constants have no chart


def test_no_raw_name_of_a_metric_is_shown(full_run: Path, page: Page) -> None:
    titles = " ".join(a["title"] or "" for _, a in page.tags if "title" in a)
    lines = (full_run / "metrics.jsonl").read_text().splitlines()
    keys = {key for line in lines for key in json.loads(line) if "/" in key or "_" in key}
    shown = re.sub(r"The resolved config.*", "", page.words)
    assert [key for key in keys if key in shown or key in titles] == []


def test_known_metrics_have_plain_titles_and_unknown_ones_readable_ones(page: Page) -> None:
    for title in (
        "Share of games not lost, against random play",
        "Share of games not lost, against its self of iteration 40",
        "Regret per move",
        "Exploitability",
        "How sure the policy is (entropy)",
        "Games ended by an invalid move",
        "MBPP eval",
        "Pass rate",
        "Mean reward",
        "What the judge ruled",
    ):
        assert title in page.words


def test_measures_on_held_out_problems_and_before_imitation_are_named() -> None:
    wanted = {
        "eval/code_tests/held_out/games": (
            "",
            "Evaluation games",
            "Code tests, on held-out problems",
        ),
        "eval/code_tests/held_out/reward/author": (
            *("Code tests", "Reward by seat, on held-out problems", "Author"),
        ),
        "eval/code_tests/held_out/tests_passed": (
            *("Code tests", "Tests passed, on held-out problems", ""),
        ),
        "before_imitation/eval/matching/error_rate": (
            *("Before imitation · Matching", "Turns lost to errors", ""),
        ),
        "curriculum/matching": ("Matching", "Level of the curriculum", ""),
        "equivalence/accepted_seq": ("", "Equivalent pairs accepted", ""),
        "tests/validity": ("", "Valid tests", ""),
        "tests/kind/not allowed": ("Kind", "Tests that are not allowed", ""),
    }
    specs = {key: chart_spec(key) for key in wanted}
    assert {k: (s.tag, s.title, s.label) for k, s in specs.items()} == wanted


def test_what_samplings_have_in_common_is_said_once() -> None:
    greedy, sampled = {"temperature": 0.0, "max_tokens": 1}, {"temperature": 1.0, "max_tokens": 1}
    assert asked_with(greedy) == "greedily, with up to 1 token"
    assert asked_with(greedy, sampled) == "greedily or at temperature 1, with up to 1 token"
    assert (
        asked_with(greedy, {"max_tokens": 4})
        == "greedily, with up to 1 token or with up to 4 tokens"
    )


def test_the_header_says_what_was_trained_and_what_it_gained(page: Page) -> None:
    assert "nano played 15,360 games of Tic-tac-toe, Kuhn poker and Negotiation" in page.words
    assert "120 of 120" in page.words
    tiles = page.all("div", "tile")
    assert len(tiles) == 4
    assert all("better" in (tile["class"] or "") for tile in tiles)
    assert "7 % → 98.6 %" in page.words  # (31 + 4) / 500 before, (431 + 62) / 500 after
    assert "1.62 → 0.021" in page.words
    assert "From the untrained policy to the trained one." in page.words
    asked = (
        "In these games the policy answered greedily, with up to 4 tokens, in the style “short”."
    )
    assert asked in page.words
    assert "Measures: estimated from 100 replies." in page.words


def test_ladder_events_config_and_versions_are_there(page: Page) -> None:
    assert len(page.all("g", "rung")) == 6
    assert "fitted to all 1,500 games" in page.words
    assert "+356 (+298 to +414)" in page.words and "−402 (−459 to −345)" in page.words
    assert all([e["iteration"] for e in chart["events"]] == [34, 71] for chart in page.charts)
    assert "Rolled back iteration 71" in page.words
    # And first of all above the figures, with the reason.
    alarm = page.words.index("Rolled back at iteration 71")
    assert alarm < page.words.index("Iterations")
    assert "entropy fell" in page.words[alarm : alarm + 80]
    assert "lr_floor: 0.05" in page.words
    assert "Report made with Python" in page.words


def test_games_of_each_kind_are_drawn_and_the_rest_is_a_conversation(page: Page) -> None:
    assert page.all("svg", "board") and page.all("svg", "hand") and page.all("table", "goods")
    assert len(page.all("ol", "chat")) == 1
    assert "What goes on four legs in the morning?" in page.words
    for words in ("Forfeits: not a free cell", "At the start · iteration 0", "Half-way", "Riddle"):
        assert words in page.words
    links = {a["href"] for a in page.all("a") if (a["href"] or "").startswith("#replay")}
    assert links == {f"#{a['id']}" for a in page.all("article", "replay")}
    assert len(links) >= 10


def test_what_models_say_stays_text(page: Page) -> None:
    assert "</script></pre><img src=x onerror=alert(1)>" in page.words
    assert page.all("img") == []
    assert len(page.all("script")) == 1
    assert all(not name.startswith("on") for _, attrs in page.tags for name in attrs)


def test_nothing_is_fetched(full_run: Path, page: Page) -> None:
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "image", "use")
        assert "src" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    text = (full_run / "report.html").read_text()
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert style and script
    for part in (style[1], script[1]):
        found = re.findall(r"https?:[^\s*;]*|url\(|@import|fetch\(|XMLHttp|import\(", part)
        assert set(found) <= {"https://github.com/leeoniya/uPlot"}  # in the library's own comment
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


def test_it_follows_the_reader_into_the_dark(full_run: Path) -> None:
    assert "prefers-color-scheme: dark" in (full_run / "report.html").read_text()


def test_an_empty_run_has_no_empty_sections(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "This run has not finished an iteration yet." in page.words
    assert page.all("section") == [] and page.all("p", "empty") == []


def test_no_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_report(tmp_path / "nowhere")


def test_a_torn_line_and_strange_values_cost_only_themselves(tmp_path: Path) -> None:
    lines = [
        '{"iteration": 0, "learn/loss": 1.5, "learn/kl": NaN, "note": "words"}',
        '{"iteration": 1, "learn/loss": 2.5, "learn/kl": Infinity}',
        "[1, 2]",
        '{"iteration": 1, "learn/loss": 3.5}',
        '{"iteration": 2, "learn/lo',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    page = page_of(tmp_path)
    assert "over 1 iteration," in page.words or "over 1 iteration." in page.words  # 0 is before it
    assert [a["data-metrics"] for a in page.all("figure", "chart")] == ["learn/loss"]
    assert page.charts[0]["ys"] == [[1.5, 3.5]]  # the later line of iteration 1 counts
    assert "Distance from the reference (KL) no number" in page.words


def test_one_iteration_is_enough_for_a_page(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 7, "eval/score": 0}\n')
    page = page_of(tmp_path)
    assert "Score that picks the best checkpoint 0" in page.words  # one value is no curve
    assert "over 1 iteration." in page.words


def test_a_broken_archive_or_table_leaves_the_rest(full_run: Path, tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    whole = (full_run / "episodes" / "000000.jsonl.gz").read_bytes()
    (tmp_path / "episodes" / "000000.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "episodes" / "000001.jsonl.gz").write_bytes(b"not gzip at all")
    with gzip.open(tmp_path / "episodes" / "000002.jsonl.gz", "wt") as file:
        file.write('{"id": "x"}\n{"id": "y", "task"\n')
    rated = '{"ratings": [{"name": "a"}, 3, {"name": "b", "elo": 25, "low": 25, "high": 25}]}'
    (tmp_path / "ladder.json").write_text(rated)
    (tmp_path / "evaluation.json").write_text('{"kuhn": 3, "tictactoe": {"random": {"games": 0}}}')
    (tmp_path / "events.jsonl").write_text('{"event": "stopped"}\n{"event"')
    (tmp_path / "config.yaml").write_text("a: [1")
    page = page_of(tmp_path)
    assert len(page.all("g", "rung")) == 1
    assert len(page.all("article", "replay")) >= 1
    assert "Stopped" in page.words


def test_ten_thousand_iterations_stay_one_light_page(tmp_path: Path) -> None:
    lines = [json.dumps({"iteration": i, "learn/loss": i % 7, "turns": i}) for i in range(10_000)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    page = page_of(tmp_path)
    assert len(page.charts) == 2
    assert all(100 < len(chart["x"]) <= 500 for chart in page.charts)
    assert (tmp_path / "report.html").stat().st_size < 200_000
