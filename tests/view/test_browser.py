"""The view in a real Chromium. (tests/release has the files that it shows in the wheel.)"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import runpy
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import lives
import pytest
from browser import assert_reachable, chromium, problems_of
from fake_run import write_run

REPOSITORY = Path(__file__).parents[2]
BENCHMARK = runpy.run_path(str(REPOSITORY / "benchmarks" / "view.py"))
pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With hostile words in its games and events, a rollback and three kinds of boards."""
    return write_run(tmp_path_factory.mktemp("runs") / "spiral-7")


def cache_in(folder: Path) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder)


@pytest.fixture(scope="module")
def address(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    words = ("view", run, "--port", 0)
    server = lives.begin(*words, cwd=elsewhere, first=partial(cache_in, elsewhere))
    try:
        yield server.line("http://")
    finally:
        server.process.terminate()
        server.end()


@pytest.fixture(scope="module")
def browser(run: Path) -> Iterator[Any]:
    """After the run is made: Playwright keeps a loop going, in which no game can be played."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def tab(browser: Any) -> tuple[Any, list[str]]:
    """One for all tests: a new one takes a second of processor time."""
    page = browser.new_page()
    return page, problems_of(page)


@pytest.fixture
def page(tab: tuple[Any, list[str]]) -> Iterator[Any]:
    page, problems = tab
    page.set_viewport_size({"width": 1200, "height": 900})
    yield page
    assert problems == []
    page.goto("about:blank")


def checksums(run: Path) -> dict[str, str]:
    files = [p for p in sorted(run.rglob("*")) if p.is_file()]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def episodes(run: Path) -> list[dict[str, Any]]:
    files = [*sorted((run / "episodes").glob("*.gz")), run / "evaluation_games.jsonl.gz"]
    found = []
    for file in files:
        stem = file.name.split(".")[0]
        with gzip.open(file, "rt") as lines:
            found += [
                {**json.loads(line), "iteration": int(stem) if stem.isdigit() else None}
                for line in lines
            ]
    return found


def open_games(page: Any, address: str, query: str = "") -> int:
    """How many games the page says there are, once all are read."""
    page.goto(f"{address}/run/spiral-7/games{query}")
    page.wait_for_selector("b.count")
    page.wait_for_function("() => !document.querySelector('.intro [aria-busy]')")
    return int(page.inner_text("b.count").replace(",", ""))


def test_every_page_loads_and_no_file_of_the_run_changes(
    page: Any, address: str, run: Path
) -> None:
    before = checksums(run)
    group = next(e["group"] for e in episodes(run) if e["iteration"] == 119)
    for path, wanted in {
        "/": "spiral-7",
        "/run/spiral-7": "Score that picks",
        "/compare?runs=spiral-7": "Curves",
        "/run/spiral-7/games": "of 1",
        "/run/spiral-7/games/000119/0": "Saw",
        f"/run/spiral-7/group/000119?group={group}": "2 of 2 games",
        "/run/spiral-7/ladder": "main@119",
        "/run/spiral-7/play": "Begin",
        "/run/spiral-7/config": "learn.lr_floor",
    }.items():
        page.goto(address + path)
        page.wait_for_selector(f"main:has-text({wanted!r})")
        assert page.query_selector(".problem") is None
    assert checksums(run) == before


def test_a_rollback_stands_where_it_is_seen_first(page: Any, address: str) -> None:
    page.goto(f"{address}/run/spiral-7")
    box = page.wait_for_selector(".notice.alarm b:text('Rolled back')").bounding_box()
    assert box["y"] + box["height"] < 900
    assert "entropy fell to 0.01" in page.inner_text(".notice.alarm p")


def test_a_new_line_is_shown_within_two_seconds_and_a_torn_one_harms_nothing(
    page: Any, address: str, run: Path
) -> None:
    log = run / "metrics.jsonl"
    before = log.read_bytes()
    page.goto(f"{address}/run/spiral-7")
    page.wait_for_selector("b.iteration:text-is('119')")
    page.wait_for_timeout(500)  # until the page listens
    waits, end = list[float](), '{"iteration": 120, "learn/entr'
    try:
        for number in range(120, 126):  # several times: another program may hold the processor
            with log.open("a") as file:  # one line is whole, the next one is not yet
                file.write(f'{end}opy": 0.5}}\n{{"iteration": "torn\n{{"iteration": {number + 1}, ')
            end, started = '"learn/entr', time.monotonic()
            page.wait_for_selector(f"b.iteration:text-is('{number}')")
            waits.append(time.monotonic() - started)
            if len(waits) > 1 and min(waits) < 2:
                break
        assert min(waits) < 2
    finally:
        log.write_bytes(before)
    page.wait_for_selector("b.iteration:text-is('119')")  # cut back, as a resumed run does


def plot(page: Any) -> Any:
    return page.wait_for_selector("figure.chart .u-over")


def shown(page: Any) -> list[str]:
    """What the pointer reads at both ends of the first chart."""
    box = plot(page).bounding_box()
    found = []
    for share in (0.001, 0.999):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 30)
        page.wait_for_function("() => !document.querySelector('figure.chart .tip').hidden")
        found.append(page.inner_text("figure.chart .tip small"))
    return found


def test_zoom_is_in_the_address_and_can_be_reset(page: Any, address: str) -> None:
    page.goto(f"{address}/run/spiral-7")
    assert shown(page) == ["iteration 0", "iteration 110"]  # evaluated every tenth
    box = plot(page).bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 40, steps=6)
    page.mouse.up()
    page.wait_for_selector("button.reset")
    low, high = (float(x) for x in page.url.split("zoom=")[1].split("%2C"))
    assert 20 < low < 35 and 75 < high < 90
    page.reload()
    assert shown(page) == ["iteration 30", "iteration 80"]
    page.click("button.reset")
    assert "zoom" not in page.url
    assert shown(page) == ["iteration 0", "iteration 110"]


def test_a_click_on_a_point_opens_that_iterations_games(page: Any, address: str) -> None:
    page.goto(f"{address}/run/spiral-7")
    assert shown(page) == ["iteration 0", "iteration 110"]
    box = plot(page).bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 30)
    page.wait_for_selector("figure.chart .tip small:text-is('iteration 0')")
    page.mouse.click(box["x"] + 2, box["y"] + 30)
    page.wait_for_url("**/games?iteration=0")
    page.wait_for_selector("b.count")


def test_filters_count_what_the_files_hold(page: Any, address: str, run: Path) -> None:
    every = episodes(run)

    def learner_got(e: dict[str, Any], seat: str, least: float) -> bool:
        return e["seating"].get(seat) == "main" and e["rewards"].get(seat, -9) >= least

    expected = {
        "": len(every),
        "?iteration=0": sum(e["iteration"] == 0 for e in every),
        "?iteration=0-60": sum(e["iteration"] in (0, 60) for e in every),
        "?iteration=evaluation": sum(e["iteration"] is None for e in every),
        "?game=kuhn": sum(e["game"] == "kuhn" for e in every),
        "?opponent=random": sum("random" in e["seating"].values() for e in every),
        "?invalid=yes": sum(e["facts"].get("end") == "invalid" for e in every),
        "?void=yes": sum(e["void"] is not None for e in every),
        "?verdict=exact": sum(any(v["kind"] == "exact" for v in e["verdicts"]) for e in every),
        "?outcome=X+wins": sum(
            e["facts"].get("winner") == "x" and e["facts"]["end"] == "win" for e in every
        ),
        "?seat=x&least=1": sum(learner_got(e, "x", 1) for e in every),
        "?search=four+legs": sum("four legs" in json.dumps(e) for e in every),
    }
    assert all(count > 0 for query, count in expected.items() if query != "?void=yes")
    assert open_games(page, address) == len(every)  # all are read
    games = f"{address}/api/runs/spiral-7/games"
    assert {q: page.request.get(games + q).json()["count"] for q in expected} == expected
    for query in ("?seat=x&least=1", "?search=four+legs"):
        assert open_games(page, address, query) == expected[query]
    both = "?iteration=0-60&game=kuhn&opponent=random&seat=x&outcome=X+wins&invalid=no&void=no"
    both += "&verdict=exact&least=-1&most=1&search=legs&group=one"  # every filter that there is
    with page.expect_request("**/api/runs/spiral-7/games?*") as asked:
        page.goto(f"{address}/run/spiral-7/games{both}")
    sent = dict(parse_qsl(urlsplit(asked.value.url).query))
    assert sent.items() >= dict(parse_qsl(both[1:])).items()
    open_games(page, address)
    page.select_option("select[name=game]", "kuhn")
    page.wait_for_url("**/games?game=kuhn")
    page.wait_for_selector(f"b.count:text-is('{expected['?game=kuhn']}')")


def test_a_token_shows_its_probability(page: Any, address: str, run: Path) -> None:
    page.goto(f"{address}/run/spiral-7/games/000119/0")
    page.wait_for_selector(".token")
    logprobs = [
        logprob
        for turn in next(e for e in episodes(run) if e["iteration"] == 119)["turns"]
        for logprob in turn["logprobs"]
    ]
    told = page.eval_on_selector_all(
        ".token", "tokens => tokens.map(t => [t.dataset.logprob, t.dataset.probability, t.title])"
    )
    assert sorted(float(logprob) for logprob, _, _ in told) == sorted(logprobs)
    for logprob, probability, title in told:
        assert float(probability) == pytest.approx(math.exp(float(logprob)), rel=1e-12)
        said = float(title.split("probability ")[1].split(" %")[0])
        assert said == pytest.approx(100 * math.exp(float(logprob)), abs=0.05)
    long = "import('/static/lib.js').then(({ likelihood }) => [-6.9, -900].map(likelihood))"
    assert page.evaluate(long) == ["probability 0.1 %", "logprob −900"]


def test_words_of_models_are_text(page: Any, address: str, run: Path) -> None:
    riddle = next(
        n
        for n, e in enumerate(e for e in episodes(run) if e["iteration"] == 119)
        if e["game"] == "riddle"
    )
    page.goto(f"{address}/run/spiral-7/games/000119/{riddle}")
    page.wait_for_selector(".turn")
    assert "<script>alert(" in page.inner_text("main")
    assert page.query_selector("main img, main script") is None


def test_the_keyboard_alone_opens_and_steps_a_game(page: Any, address: str) -> None:
    open_games(page, address, "?game=tictactoe&iteration=119")
    page.keyboard.press("o")
    page.wait_for_url("**/games/000119/*")
    steps = page.wait_for_selector(".controls").query_selector_all("button")
    assert len(steps) > 3
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f".controls button[aria-current]:text-is('{len(steps) - 2}')")
    first = page.url.split("?")[0]
    page.wait_for_selector("header.game-head:not([aria-busy])")
    page.keyboard.press("n")
    page.wait_for_function(f"() => !location.href.startsWith({first!r})")
    page.wait_for_selector("header.game-head:not([aria-busy])")
    page.keyboard.press("p")
    page.wait_for_function(f"() => location.href.startsWith({first!r})")
    page.keyboard.press("Escape")
    page.wait_for_url("**/games?*game=tictactoe*")


def test_a_phone_reaches_every_column(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    paths = ("/", "/run/spiral-7", "/run/spiral-7/games", "/run/spiral-7/games/000119/0")
    paths += ("/run/spiral-7/ladder", "/run/spiral-7/play", "/compare?runs=spiral-7")
    for path in (*paths, "/run/spiral-7/config"):
        page.goto(address + path)
        page.wait_for_selector("main h1")
        page.wait_for_timeout(200)
        assert_reachable(page)
    broken = """() => [...document.querySelectorAll("th code")]
      .flatMap((key) => [...key.childNodes])
      .filter((node) => node.nodeType === Node.TEXT_NODE).filter((node) => {
        const text = document.createRange();
        text.selectNodeContents(node);
        return text.getClientRects().length > 1;
      }).map((node) => node.textContent)"""
    assert page.wait_for_selector("th code").inner_text() == "recipe"
    assert page.evaluate(broken) == []  # keys end a line at a dot or an underscore alone


def test_a_game_is_rescored_and_played(page: Any, address: str) -> None:
    page.goto(f"{address}/run/spiral-7/games/000119/0")
    page.click("button:text('Re-score this game')")
    assert page.wait_for_selector(".replayed").inner_text().startswith("The same as on record")
    page.goto(f"{address}/run/spiral-7/play?game=tictactoe&policy=perfect")
    page.click("button:text-is('Begin')")
    for _ in range(5):
        page.wait_for_selector("[data-action], [role=status]")
        if page.query_selector("[role=status]"):
            break
        page.focus("[data-action]")
        page.keyboard.press("Enter")
        page.wait_for_selector("[aria-busy]", state="detached")
    assert page.inner_text("[role=status]") in ("Draw", "O wins. You lose.")


def test_only_who_is_there_can_be_met(page: Any, address: str) -> None:
    """The run has no best checkpoint, tic-tac-toe has no scripted player."""
    page.goto(f"{address}/run/spiral-7/play?game=tictactoe")
    met = page.wait_for_selector("select[name=policy]")
    options = [option.inner_text() for option in met.query_selector_all("option")]
    assert options == ["last checkpoint", "perfect player", "random player"]
    assert met.input_value() == "last"


def test_runs_of_any_name_are_listed_and_compared(page: Any, tmp_path: Path) -> None:
    names = ["lr=1,2+x", "100%#1?a&b", "a_name_that_is_as_long_as_a_sweep_makes_it_" * 4]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("seed: 3\n")
    cached = partial(cache_in, tmp_path / "cache")
    server = lives.begin("view", tmp_path, "--port", 0, cwd=tmp_path, first=cached)
    try:
        page.goto(server.line("http://"))
        page.wait_for_selector("table.list tbody tr")
        assert page.evaluate("document.querySelector('.scroll').scrollWidth") <= 1200
        assert "seed 3" in page.inner_text("main") and ", ," not in page.inner_text("main")
        for number, name in enumerate(names[:2], 1):
            page.get_by_label(f"Compare {name}").check()
            page.wait_for_selector(f"button:text-is('Compare {number}')")
        page.click("button:text-is('Compare 2')")
        page.wait_for_url("**/compare?**")
        assert page.wait_for_selector("header .lead").inner_text() == ", ".join(names[:2])
        page.click("header .lead a")
        assert page.wait_for_selector(".of-run").inner_text() == names[0]
    finally:
        page.goto("about:blank")
        server.process.terminate()
        server.end()


def test_sixty_charts_are_drawn_in_half_a_second(page: Any, address: str) -> None:
    page.goto(f"{address}/run/spiral-7")
    plot(page)
    assert any(page.evaluate(BENCHMARK["DRAW"], 400) < 0.5 for _ in range(5))


def test_the_first_page_of_the_games_comes_at_once_when_they_are_indexed(
    page: Any, address: str
) -> None:
    open_games(page, address)

    def wait() -> float:
        started = time.monotonic()
        page.goto(f"{address}/run/spiral-7/games")
        page.wait_for_selector("table.games tbody tr")
        return time.monotonic() - started

    assert any(wait() < 1 for _ in range(3))
