"""A server for tests: speaks OpenAI's protocol, or misbehaves as it is told to."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler", dict[str, Any]], None]


def chat_reply(text: Any = "4", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, **fields}
    choice.setdefault("finish_reason", "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Rogue"

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.server.models is None:
            self.send(self.server.models_status, {"error": "not here"})
        else:
            roots = self.server.roots
            cards = [{"id": name, "root": roots.get(name)} for name in self.server.models]
            self.send(200, {"data": cards})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rogue = self.server
        with rogue.lock:
            rogue.paths.append(self.path)
            rogue.bodies.append(body)
            rogue.keys.append(self.headers.get("authorization"))
            rogue.times.append(time.monotonic())
            rogue.at_once += 1
            rogue.most_at_once = max(rogue.most_at_once, rogue.at_once)
            reply = rogue.script.pop(0) if rogue.script else rogue.default
        try:
            reply(self, body)
        finally:
            with rogue.lock:
                rogue.at_once -= 1

    def send(self, status: int, data: Any, **headers: str) -> None:
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        pass


class Rogue(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.script: list[Reply] = []  # one for each request, in order; then the default
        self.default: Reply = says("4")
        self.models: list[str] | None = ["m"]
        self.roots: dict[str, str] = {}  # model -> the folder of its adapter
        self.models_status = 404
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.at_once = self.most_at_once = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *args: Any) -> None:
        """Clients that hang up are part of the game."""


def says(text: Any, **fields: Any) -> Reply:
    return lambda handler, body: handler.send(200, chat_reply(text, **fields))


def refuses(status: int, message: str = "no", **headers: str) -> Reply:
    return lambda handler, body: handler.send(status, {"error": {"message": message}}, **headers)


def raw(data: bytes) -> Reply:
    return lambda handler, body: handler.send(200, data)


def slow(seconds: float, then: Reply) -> Reply:
    def reply(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        then(handler, body)

    return reply


def hangs_up(handler: Handler, body: dict[str, Any]) -> None:
    handler.close_connection = True
    handler.connection.close()


def drips(handler: Handler, body: dict[str, Any]) -> None:
    """A byte now and then, for longer than anyone should wait."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def echoes_the_key(handler: Handler, body: dict[str, Any]) -> None:
    handler.send(200, chat_reply(f"your header was {handler.headers['authorization']}"))


@contextmanager
def rogue_server() -> Iterator[Rogue]:
    rogue = Rogue()
    thread = threading.Thread(target=rogue.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield rogue
    finally:
        rogue.shutdown()
        rogue.server_close()
        thread.join()
