"""Games inside verl: an agent loop that plays any game of this package with verl's own servers, and
the reward function that goes with it. Imported by verl's workers, never by the rest."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)
from verl.workers.rollout.replica import TokenOutput

from sparring.core.collect import Job, play
from sparring.core.game import Game
from sparring.core.types import (
    MAIN,
    Episode,
    Request,
    Sample,
    Sampling,
    Task,
    Turn,
    VoidGame,
    derive,
)
from sparring.credit.samples import join
from sparring.models.chat import RAW, Chat
from sparring.models.template import settle_template
from sparring.run.games import load_game
from sparring.training.instances import AGENT

_OPEN: dict[tuple[str, str], Game] = {}  # games whose judges run in this worker
_OPENING = asyncio.Lock()


@register(AGENT)
class GameLoop(AgentLoopBase):
    """One row, one game. Every seat speaks with the model that verl serves; what comes back are
    the sequences of the row's seat, or of all seats where the row names none."""

    def __init__(self, *args: Any, sandbox: str = "bubblewrap", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settle_template(self.tokenizer, None, "verl's model")
        self.chat = Chat(self.tokenizer)
        self.sandbox = sandbox

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        extra = row["extra_info"]
        game = await opened_game(extra["game"], extra["options"], self.sandbox)
        data = json.loads(row["reward_model"]["ground_truth"])
        served: list[tuple[float, TokenOutput]] = []
        job = Job(
            id=uuid4().hex,
            name=extra["game"],
            game=game,
            task=Task(extra["task_id"], extra["game"], data),
            seed=derive(uuid4().hex),
            seating=dict.fromkeys(game.seats, MAIN),
            learned=frozenset([MAIN]),
        )
        episode = await play(
            job,
            lambda request: self._speak(request, sampling_params, job.id, served),
            sampling=sampling_of(sampling_params, self.rollout_config.response_length),
        )
        wanted = [extra["seat"]] if extra["seat"] else list(game.seats)
        seconds = sum(spent for spent, _ in served)
        versions = weight_versions((output for _, output in served), row.get("global_steps", 1) - 1)
        outputs = [
            self._output(sample, episode, seat, seconds, versions)
            for seat in wanted
            for sample in join([(t, 0.0) for t in episode.turns if t.seat == seat])
        ]
        if not outputs:  # the seat was never asked
            nothing = Sample(MAIN, self._unasked(row["raw_prompt"]), [], [], [])
            outputs = [self._output(nothing, episode, wanted[-1], seconds, versions)]
        return outputs[0] if len(outputs) == 1 else outputs

    async def _speak(
        self,
        request: Request,
        given: Mapping[str, Any],
        game: str,
        served: list[tuple[float, TokenOutput]],
    ) -> Turn:
        prompt_ids = self.chat.prompt_ids(request)
        room = self.rollout_config.prompt_length + self.rollout_config.response_length
        if len(prompt_ids) >= room:
            raise VoidGame(f"a prompt of {len(prompt_ids)} tokens does not fit verl's {room}")
        started = time.perf_counter()
        output = await self.server_manager.generate(
            request_id=f"{game}-{request.seat}",  # a seat's turns stay on the server that knows it
            prompt_ids=prompt_ids,
            sampling_params={**given, **params_of(request.sampling)},
        )
        served.append((time.perf_counter() - started, output))
        raw = request.messages[0]["role"] == RAW
        thoughts, text = self.chat.split(list(output.token_ids), whole=raw)
        return Turn(
            seat=request.seat,
            policy=request.policy,
            prompt=request.messages[-1]["content"],
            text=text,
            thoughts=thoughts,
            prompt_ids=prompt_ids,
            token_ids=list(output.token_ids),
            logprobs=list(output.log_probs or [0.0] * len(output.token_ids)),
            temperature=request.sampling.temperature or 1.0,
        )

    def _output(
        self,
        sample: Sample,
        episode: Episode,
        seat: str,
        seconds: float,
        versions: Mapping[str, int],
    ) -> AgentLoopOutput:
        """A sequence as verl has it. A void game is not trained on: its mask is empty."""
        first = sample.mask.index(1) if 1 in sample.mask else len(sample.ids)
        most = self.rollout_config.response_length
        response = sample.ids[first:][:most] or [self.tokenizer.eos_token_id]
        fair = episode.void is None
        mask = (sample.mask[first:][:most] or [0]) if fair else [0] * len(response)
        reward = episode.rewards[seat] if fair else 0.0
        turns = sum(turn.seat == seat for turn in episode.turns)
        facts = {"score": reward, "game_reward": reward, "void": float(not fair)}
        return AgentLoopOutput(
            prompt_ids=self._cap_text_prompt_length(sample.ids[:first]),
            response_ids=response,
            response_mask=mask,
            response_logprobs=sample.logprobs[first:][:most] or [0.0],
            reward_score=reward,
            num_turns=2 * turns,
            metrics=AgentLoopMetrics(generate_sequences=seconds),
            # verl reads the same keys from every output
            extra_fields={
                "reward_extra_info": facts,
                "turn_scores": [],
                "tool_rewards": [],
                **versions,
            },
        )

    def _unasked(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.chat.ids_of([dict(message) for message in messages])


async def opened_game(name: str, options: str, sandbox: str) -> Game:
    """A game whose judges run; started once in each worker, and stopped with it."""
    async with _OPENING:
        if (name, options) not in _OPEN:
            game = load_game(name, **json.loads(options))
            await game.open(sandbox)
            _OPEN[name, options] = game
    return _OPEN[name, options]


def weight_versions(outputs: Iterable[TokenOutput], otherwise: int) -> dict[str, int]:
    """The oldest and the newest weights that spoke in a game, by verl's step: its trainer computes
    every sequence's staleness from them, a game in which nobody was asked included."""
    spans = [
        (output.extra_fields.get("min_global_steps"), output.extra_fields.get("max_global_steps"))
        for output in outputs
    ]
    steps = [step for span in spans for step in span if step is not None] or [otherwise]
    return {"min_global_steps": min(steps), "max_global_steps": max(steps)}


def sampling_of(given: Mapping[str, Any], response_length: int) -> Sampling:
    """verl's sampling parameters as a game's; -1 is its word for no top-k."""
    return Sampling(
        temperature=float(given.get("temperature", 1.0)),
        top_p=float(given.get("top_p", 1.0)),
        top_k=max(0, int(given.get("top_k", -1))),
        max_tokens=response_length,
    )


def params_of(sampling: Sampling) -> dict[str, Any]:
    """A game's sampling as verl's servers take it."""
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "max_tokens": sampling.max_tokens,
    }
    return params | ({"stop": list(sampling.stop)} if sampling.stop else {})


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> float:
    """verl's custom reward function. A game that the agent loop played brings its reward along; a
    matching that another loop asked for in one turn is scored as if the partner accepted it."""
    extra = extra_info or {}
    played = (extra.get("reward_extra_info") or {}).get("game_reward")
    if played is not None:
        return float(played)
    game = load_game(
        data_source.removeprefix("sparring/"), **json.loads(extra.get("options") or "{}")
    )
    score = game.reply_score(
        Task(str(extra.get("task_id", "")), data=json.loads(ground_truth)), solution_str
    )
    if score is None:
        raise ValueError(
            f"{data_source} has no reward outside its game: set rollout.agent.default_agent_loop "
            f"to {AGENT}, which plays it"
        )
    return score
