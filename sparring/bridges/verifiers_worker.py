"""verifiers' side of the bridge, run in a worker process. An episode runs until a model is asked,
and waits there until the game has an answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.clients.client import Client
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.interception import server as interception
from verifiers.v1.utils.loaders import env_config_type, load_environment, resolve_env_config

from sparring.bridges.host import serve
from sparring.bridges.verifiers_chat import PLUGIN

MOST_TASKS = 10_000  # of a set without an end
_loop = asyncio.new_event_loop()
_environments: dict[str, tuple[Any, list[Any]]] = {}  # id and settings -> environment, its tasks
_open: dict[int, _Episode] = {}


@dataclass
class _Episode:
    seats: list[str]
    agents: dict[str, str] = field(default_factory=dict)  # trace -> the agent that it is of
    asked: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[str]]] = field(
        default_factory=asyncio.Queue
    )
    waiting: asyncio.Future[str] | None = None
    running: asyncio.Task[Any] | None = None


class GameClient(Client):
    """Answers a model call with what a player says."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def get_response(
        self,
        dialect: Any,
        body: dict[str, Any],
        sampling: Any,
        session_id: str | None = None,
        turn: Any = None,
        headers: Any = None,
    ) -> Any:
        episode = _open[self.number]
        name = episode.agents.get(session_id or "") or episode.seats[0]
        reply: asyncio.Future[str] = _loop.create_future()
        observation = [
            {"role": message["role"], "content": _text(message.get("content"))}
            for message in body["messages"]
        ]
        await episode.asked.put(
            ({"player": episode.seats.index(name), "observation": observation}, reply)
        )
        text = await reply
        raw = {
            "id": f"sparring-{self.number}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model", ""),
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        response = dialect.parse_response(dialect.validate_response(raw))
        response.raw = raw
        return response


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content)


_resolve = interception.resolve_client


def _client(config: Any) -> Client:
    prefix, _, number = config.base_url.rpartition("/")
    return GameClient(int(number)) if prefix == "sparring:" else _resolve(config)


interception.resolve_client = _client  # this process serves games and nothing else


def _config(game: str, settings: dict[str, Any]) -> Any:
    """The environment's config, its agents asked through our harness, on this machine."""
    data = json.loads(json.dumps(settings))
    data["taskset"] = {**data.get("taskset", {}), "id": game}
    for name, value in env_config_type(game, data.get("id", "")).model_fields.items():
        if isinstance(value.default, vf.AgentConfig):
            ours = {"harness": {"id": PLUGIN}, "runtime": {"type": "subprocess"}}
            data[name] = {**ours, **data.get(name, {})}
    return resolve_env_config(data)


def seats(environment: int, game: str, settings: dict[str, Any]) -> list[str]:
    """The agents that no model is named for."""
    agents = agent_config_fields(_config(game, settings))
    return [name for name, agent in agents.items() if agent.model is None]


def _environment(game: str, settings: dict[str, Any]) -> tuple[Any, list[Any]]:
    key = json.dumps([game, settings], sort_keys=True)
    if key not in _environments:
        env = load_environment(_config(game, settings))
        tasks = list(itertools.islice(env.taskset, MOST_TASKS))
        if not tasks:
            raise ValueError(f"{game} has no tasks")
        _loop.run_until_complete(env.serving().__aenter__())  # until this process ends
        _environments[key] = env, tasks
    return _environments[key]


def open_episode(
    environment: int, game: str, players: int, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    env, tasks = _environment(game, settings)
    episode = _open[environment] = _Episode(seats(environment, game, settings))
    context = vf.ModelContext(
        model="sparring",
        client=vf.EvalClientConfig(base_url=f"sparring:/{environment}", api_key_var="NO_KEY"),
    )

    def minted(trace: Any) -> None:
        episode.agents[trace.id] = trace.agent.name if trace.agent else ""

    async def run() -> Any:
        return await env.run_episode(tasks[seed % len(tasks)], context, on_trace=minted)

    episode.running = _loop.create_task(run())
    return _loop.run_until_complete(_next(episode))


def step(environment: int, action: str) -> dict[str, Any]:
    episode = _open[environment]
    assert episode.waiting is not None
    episode.waiting.set_result(action)
    return _loop.run_until_complete(_next(episode))


async def _next(episode: _Episode) -> dict[str, Any]:
    """Until a model is asked again, or the episode is over."""
    assert episode.running is not None
    asking = asyncio.ensure_future(episode.asked.get())
    await asyncio.wait({asking, episode.running}, return_when=asyncio.FIRST_COMPLETED)
    if asking.done():
        request, episode.waiting = asking.result()
        return request
    asking.cancel()
    return _ended(episode, episode.running.result())


def _ended(episode: _Episode, done: Any) -> dict[str, Any]:
    """Rewards by agent: of several traces of one agent, their sum."""
    errors = [*done.errors, *(error for trace in done.traces for error in trace.errors)]
    if not done.ok:
        raise RuntimeError(
            "; ".join(f"{error.type}: {error.message}" for error in errors) or "the episode failed"
        )
    rewards = dict.fromkeys(range(len(episode.seats)), 0.0)
    info: dict[int, Any] = {}
    for trace in done.traces:
        name = (trace.agent.name if trace.agent else "") or episode.seats[0]
        if name in episode.seats:
            at = episode.seats.index(name)
            rewards[at] += trace.reward
            parts = {key: value.value for key, value in trace.rewards.items() if value is not None}
            info.setdefault(at, {}).update({"rewards": parts, "metrics": dict(trace.metrics)})
    return {"rewards": rewards, "info": json.loads(json.dumps(info, default=str))}


def close(number: int) -> None:
    episode = _open.pop(number, None)
    if episode is not None and episode.running is not None and not episode.running.done():
        episode.running.cancel()
        _loop.run_until_complete(asyncio.wait({episode.running}))


if __name__ == "__main__":
    serve({"open": open_episode, "step": step, "seats": seats}, close=close)
