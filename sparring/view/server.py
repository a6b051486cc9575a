"""The browser view: a server for this machine alone that reads runs and writes nothing in them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sparring.core.errors import ConfigError
from sparring.core.plugin import load_all
from sparring.run.outputs import listen
from sparring.view import config_page, ladder_page, rescore, token_text
from sparring.view.curves import chart_events, key_charts, layout
from sparring.view.episode_index import EpisodeIndex
from sparring.view.game_data import game_data
from sparring.view.play import Sessions
from sparring.view.results import headlines, results_table, tiles
from sparring.view.rundata import read_log, read_results, series
from sparring.view.runs import find_runs, notices, summarize_run
from sparring.view.tail import finite, server_sent_events

STATIC = Path(__file__).parent / "static"
HOST = "127.0.0.1"


class View:
    """The runs in view, and an index of games for each that was opened."""

    def __init__(self, paths: Sequence[Path], cache: Path | None = None) -> None:
        self.paths, self.cache = list(paths), cache
        self.sessions = Sessions()
        self._indexes: dict[Path, EpisodeIndex] = {}
        self._updating: dict[Path, threading.Thread] = {}
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        return find_runs(self.paths)

    def run(self, request: Request) -> Path:
        name = request.path_params["run"]
        try:
            return self.runs()[name]
        except KeyError:
            raise ConfigError(f"there is no run {name!r} in view") from None

    def index(self, run: Path) -> EpisodeIndex:
        with self._lock:
            if run not in self._indexes:
                self._indexes[run] = EpisodeIndex(run, self.cache)
            return self._indexes[run]

    def update(self, run: Path, wait_s: float = 0.6) -> dict[str, int] | None:
        """Read new games in the background; what is left to read, where it takes long."""
        index = self.index(run)
        changed, gone, total = index.stale()
        if not changed and not gone:
            return None
        with self._lock:
            thread = self._updating.get(run)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=index.update, daemon=True, name="episode index")
                self._updating[run] = thread
                thread.start()
        thread.join(wait_s)
        left = len(index.stale()[0])
        return {"left": left, "total": total} if left else None


def make_app(paths: Sequence[Path], cache: Path | None = None) -> Starlette:
    view = View(paths, cache)
    page = (STATIC / "index.html").read_text(encoding="utf-8")

    async def index_page(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": content_policy(page)})

    async def stream(request: Request) -> Response:
        return _stream(view, request)

    routes = [
        Route("/api/runs", _json(lambda r: _runs(view))),
        Route("/api/compare", _json(lambda r: _compare(view, r))),
        Route("/api/runs/{run}", _json(lambda r: _run(view, r))),
        Route("/api/runs/{run}/stream", stream),
        Route("/api/runs/{run}/games", _json(lambda r: _games(view, r))),
        Route("/api/runs/{run}/games/{file}/{number:int}", _json(lambda r: _game(view, r))),
        Route(
            "/api/runs/{run}/games/{file}/{number:int}/rescore",
            _posted(lambda r, body: _rescore(view, r)),
            methods=["POST"],
        ),
        Route("/api/runs/{run}/group/{file}", _json(lambda r: _group(view, r))),
        Route("/api/runs/{run}/ladder", _json(lambda r: ladder_page.ladder(view.run(r)))),
        Route("/api/runs/{run}/config", _json(lambda r: config_page.config(view.run(r)))),
        Route(
            "/api/runs/{run}/play",
            _posted(lambda r, body: _start(view, r, body)),
            methods=["POST"],
        ),
        Route("/api/play/{id}", _posted(lambda r, body: _move(view, r, body)), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/{path:path}", index_page),
    ]
    middleware = [
        # A page elsewhere must not reach this server through a name of its own.
        Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "testserver"]),
        Middleware(GZipMiddleware, minimum_size=2000),
    ]
    app = Starlette(routes=routes, middleware=middleware)
    app.state.view = view
    return app


def content_policy(page: str) -> str:
    """Scripts, styles and requests of this server alone; the import map by its checksum."""
    inline = re.findall(r"<script type=\"importmap\">(.*?)</script>", page, re.DOTALL)
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in inline
    )
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _answer(data: Any, status: int = 200) -> Response:
    text = json.dumps(finite(data), ensure_ascii=False, separators=(",", ":"), default=str)
    # A model may say half a surrogate pair, which no answer can hold.
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def _json(make: Any) -> Any:
    async def endpoint(request: Request) -> Response:
        try:
            return _answer(await run_in_threadpool(make, request))
        except (ConfigError, FileNotFoundError) as error:
            return _answer({"error": str(error)}, 404)

    return endpoint


def _posted(make: Any) -> Any:
    """An answer to what this view's own page sends: another site cannot send JSON unasked."""

    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type") != "application/json":
            return _answer({"error": "send JSON"}, 415)
        try:
            return _answer(await make(request, await request.json()))
        except (ConfigError, FileNotFoundError) as error:
            return _answer({"error": str(error)}, 400)
        except Exception as error:  # of a game, a judge or a model: it is this request's answer
            return _answer({"error": f"{type(error).__name__}: {error}"}, 500)

    return endpoint


def _runs(view: View) -> dict[str, Any]:
    payload = [summarize_run(name, path) for name, path in view.runs().items()]
    return {"runs": payload, "folders": [str(path) for path in view.paths]}


def _run(view: View, request: Request) -> dict[str, Any]:
    path = view.run(request)
    run = read_results(path)
    data = series(run.lines)
    sections = layout(data)
    parts = [part for make in load_all("report") if (part := make(run)) is not None]
    return {
        **summarize_run(request.path_params["run"], path),
        "notices": notices(run, view.index(path).void_reasons()),
        "tiles": "".join(part.tiles for part in parts) or tiles(*headlines(run.evaluation, data)),
        "results": results_table(run.evaluation) + "".join(part.results for part in parts),
        "parts": [s._asdict() for part in parts for s in part.sections if s.body],
        "sections": sections,
        "key": key_charts(sections),
        "events": chart_events(run.events),
        **columns(run.lines),
    }


def columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A log by column: the iterations, and per metric a number or null for each of them."""
    keys = dict.fromkeys(key for line in lines for key in line if key != "iteration")
    numbers = {
        key: [v if isinstance(v := line.get(key), int | float) else None for line in lines]
        for key in keys
    }
    kept = {key: column for key, column in numbers.items() if any(v is not None for v in column)}
    return {"x": [int(line["iteration"]) for line in lines], "columns": kept}


def _compare(view: View, request: Request) -> dict[str, Any]:
    runs = view.runs()
    asked = map(unquote, request.query_params.get("runs", "").split(","))
    wanted = [name for name in asked if name in runs]
    if not wanted:
        raise ConfigError("name the runs to compare")
    logs = {name: read_log(runs[name]) for name in wanted}
    together = {
        key: points for log in logs.values() for key, points in series(log.lines).items() if points
    }
    return {
        "runs": [
            {"id": name, "name": log.name, **columns(log.lines)} for name, log in logs.items()
        ],
        "bands": config_page.seeds_apart({name: log.config for name, log in logs.items()}),
        "sections": layout(together),
        "config": config_page.differences({name: log.config for name, log in logs.items()}),
    }


def _stream(view: View, request: Request) -> Response:
    try:
        run = view.run(request)
    except ConfigError as error:
        return JSONResponse({"error": str(error)}, 404)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        server_sent_events(run), media_type="text/event-stream", headers=headers
    )


def _games(view: View, request: Request) -> dict[str, Any]:
    path = view.run(request)
    indexing = view.update(path)
    index = view.index(path)
    payload = index.page(request.query_params)
    if request.query_params.get("facets"):
        payload["facets"] = index.facets()
    return {**payload, "indexing": indexing}


def _file_and_number(request: Request) -> tuple[str, int]:
    return request.path_params["file"], request.path_params["number"]


def _game(view: View, request: Request) -> dict[str, Any]:
    path = view.run(request)
    index, (file, number) = view.index(path), _file_and_number(request)
    index.need(file)
    view.update(path)
    episode = index.read(file, number)
    if episode is None:
        raise ConfigError(f"there is no game {number} in {file} of this run")
    return {
        **game_data(episode, read_log(path).config),
        "file": file,
        "number": number,
        "neighbours": index.neighbours(file, number, request.query_params),
        "group_size": len(index.group(file, episode.group)) if episode.group else 1,
    }


def _group(view: View, request: Request) -> dict[str, Any]:
    path, file = view.run(request), request.path_params["file"]
    index, config = view.index(path), read_log(view.run(request)).config
    index.need(file)
    rows = index.group(file, request.query_params.get("group", ""))
    episodes = [(row, index.read(file, row["number"])) for row in rows[:16]]
    return {
        "games": [
            {**game_data(e, config), "file": file, "number": r["number"]} for r, e in episodes if e
        ],
        "count": len(rows),
    }


async def _rescore(view: View, request: Request) -> dict[str, Any]:
    path, (file, number) = view.run(request), _file_and_number(request)
    index = view.index(path)
    await run_in_threadpool(index.need, file)
    episode = await run_in_threadpool(index.read, file, number)
    if episode is None:
        raise ConfigError(f"there is no game {number} in {file} of this run")
    beside = await run_in_threadpool(index.read_file, file)
    try:
        again = await rescore.replay(episode, read_log(path).config)
    except Exception as error:  # a game that cannot be opened here: its credit is still known
        again = {"error": f"{type(error).__name__}: {error}"}
    return {"replay": again, "credits": rescore.credits(episode, beside)}


async def _start(view: View, request: Request, body: Mapping[str, str]) -> dict[str, Any]:
    path = view.run(request)
    policy = body.get("policy") or "best"
    own = re.fullmatch(r"(best|last|\d+)(:[\w.@-]+)?", policy)
    wanted = {**body, "policy": f"{path}@{policy}" if own else policy}
    session = await view.sessions.start(read_log(path).config, wanted)
    return session.state()


async def _move(view: View, request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
    session = view.sessions.open.get(request.path_params["id"])
    if session is None:
        raise ConfigError("this game is over, or was given up for newer ones; begin another")
    if body.get("hint"):
        return {"hint": await run_in_threadpool(session.hint)}
    await session.reply(str(body.get("action", "")))
    return session.state()


def serve(
    runs: Sequence[Path], port: int, announce: Callable[[str], None], *, browser: bool = False
) -> None:
    """Serve until interrupted; `announce` gets the address once it can be opened."""
    import uvicorn

    listener = listen(HOST, port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    config = uvicorn.Config(make_app(runs), log_level="warning", timeout_graceful_shutdown=1)
    token_text.warm()
    announce(address)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listener])
