"""The embedded engine says what the model says, with the learner's logprobs, in batches."""

import asyncio
import gc
import weakref
from dataclasses import replace

import pytest
import torch

from sparring.core.collect import Job, collect
from sparring.core.game import Game, Outcome
from sparring.core.types import Episode, Request, Sampling, Task, Turn, Verdict
from sparring.credit.samples import to_samples
from sparring.engines.local.engine import PromptTooLong, TransformersEngine
from sparring.engines.local.generate import stopped
from sparring.engines.local.runner import Runner
from sparring.learn.batches import collate
from sparring.learn.learner import Learner
from sparring.run.config import LearnConfig

PROMPTS = ["a", "X:01X3O5678", "tell me more, tell me more", "b"]


def ask(text: str, seed: int = 0, policy: str = "main", order: int = 0, **sampling) -> Request:
    options = {"max_tokens": 6, **sampling}
    messages = [{"role": "user", "content": text}]
    return Request("s", policy, messages, Sampling(**options), seed, order=(order,))


def answer(engine: TransformersEngine, requests: list[Request]) -> list[Turn]:
    async def all_at_once() -> list[Turn]:
        return list(await asyncio.gather(*(engine.act(r) for r in requests)))

    return asyncio.run(all_at_once())


@pytest.fixture(params=[None, False], ids=["paged", "plain"])
def engine(request, policies) -> TransformersEngine:
    """Both ways to generate on a CPU: over the paged cache, and through transformers."""
    return TransformersEngine(policies, graphs=request.param)


class Passes:
    """Counts what is computed: rows and columns of each pass over a model."""

    def __init__(self, engine: TransformersEngine, name: str = "main") -> None:
        self.shapes: list[tuple[int, ...]] = []
        with engine.policies.using(name) as model:
            model.register_forward_pre_hook(self._note, with_kwargs=True)
        runner = engine._runner(name)
        if isinstance(runner, Runner):
            self._read, self._decode = runner._read, runner._decode
            runner._read, runner._decode = self._note_read, self._note_decode

    def _note(self, module, args, kwargs) -> None:
        self.shapes.append(tuple(kwargs["input_ids"].shape))

    def _note_read(self, spans):
        self.shapes.append((len(spans), max(span.end - span.start for span in spans)))
        return self._read(spans)

    def _note_decode(self, rows, steps) -> None:
        self.shapes.append((len(rows), 1))
        self._decode(rows, steps)


def test_greedy_is_what_generate_says(engine):
    requests = [ask(p, temperature=0, max_tokens=12, order=i) for i, p in enumerate(PROMPTS)]
    turns = answer(engine, requests)
    for turn in turns:
        with engine.policies.using("main") as model:
            expected = model.generate(
                torch.tensor([turn.prompt_ids]), max_new_tokens=12, do_sample=False, pad_token_id=0
            )
        assert turn.token_ids == expected[0, len(turn.prompt_ids) :].tolist()
    base = answer(engine, [replace(r, policy="base") for r in requests])
    assert [t.logprobs for t in base] != [t.logprobs for t in turns]  # it was main that spoke


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_logprobs_are_those_the_learner_finds(engine, temperature):
    """The canary of a healthy run: sampled and learned logprobs are the same numbers."""
    requests = [
        ask(PROMPTS[i % 4], seed=i, temperature=temperature, max_tokens=1 + i % 7, order=i)
        for i in range(24)
    ]
    turns = answer(engine, requests)
    episodes = [Episode("e", "g", Task("t"), 0, turns=[t], rewards={"s": 1.0}) for t in turns]
    for turn in turns:
        turn.trainable = True
    samples = to_samples(episodes, [[1.0] for _ in episodes])
    assert len(samples) == 24
    learner = Learner(engine.policies, ["main"], LearnConfig(), canary=1e-4)
    batch = collate(samples, 0, "cpu")
    with torch.no_grad(), engine.policies.using("main") as model:
        found, _ = learner.logprobs(model, batch)
    assert float((found - batch.logprob_N).abs().max()) < 2e-5
    assert learner.fit(samples, 0)["learn/canary"] < 1e-5


def test_each_gets_as_many_tokens_as_it_asked_for(engine):
    turns = answer(engine, [ask("a", seed=i, max_tokens=n) for i, n in enumerate((1, 5, 3, 1, 8))])
    assert [len(t.token_ids) for t in turns] == [1, 5, 3, 1, 8]
    assert {t.finish for t in turns} == {"length"}
    assert all(len(t.logprobs) == len(t.token_ids) for t in turns)


def test_the_end_token_ends_only_its_own_row(engine):
    requests = [ask("a", seed=i, max_tokens=8) for i in range(6)]
    free = answer(engine, requests)
    end = free[2].token_ids[3]
    with engine.policies.using("main") as model:
        model.generation_config.eos_token_id = [1, end]
    for before, after in zip(free, answer(engine, requests), strict=True):
        if end in before.token_ids:
            assert after.token_ids == before.token_ids[: before.token_ids.index(end) + 1]
            assert after.finish == "stop"
        else:
            assert after.token_ids == before.token_ids
            assert after.finish == "length"
    assert any(end not in turn.token_ids for turn in free)


def test_stop_strings_end_a_reply_where_they_appear(engine):
    request = ask("a", seed=3, max_tokens=60)
    free = answer(engine, [request])[0]
    stop = free.text[20:22]
    stopped = answer(engine, [replace(request, sampling=replace(request.sampling, stop=(stop,)))])[
        0
    ]
    assert stopped.finish == "stop"
    assert stop in stopped.text and free.text.startswith(stopped.text)
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert len(stopped.token_ids) < 60


def test_a_stop_of_many_tokens_is_seen_to_its_end(make_policies):
    chat = TransformersEngine(make_policies("lora", ())).chat
    stop = "and so they lived happily ever after, all of them"
    ids = chat.encode(f"once upon a time {stop}")
    assert len(chat.encode(stop)) > 40
    assert [stopped(chat, ids[:n], (stop, "never")) for n in range(len(ids) - 2, len(ids) + 1)] == [
        *[False, False, True]
    ]


def test_a_reply_does_not_depend_on_who_shares_its_batch(engine):
    requests = [ask(PROMPTS[i % 4], seed=100 + i, order=i, top_k=i % 3 * 20) for i in range(12)]
    together = answer(engine, requests)
    alone = [answer(engine, [request])[0] for request in requests]
    assert [t.token_ids for t in together] == [t.token_ids for t in alone]
    other = answer(engine, [replace(r, seed=r.seed + 1000) for r in requests])
    assert [t.token_ids for t in other] != [t.token_ids for t in alone]


def test_prompts_that_are_shared_are_read_once(engine):
    passes = Passes(engine)
    shared = answer(engine, [ask(PROMPTS[i % 2], seed=i, order=i) for i in range(40)])
    assert passes.shapes[0][0] == 2
    assert passes.shapes[1] == (40, 1), "and then each goes its own way"
    alone = [answer(engine, [ask(PROMPTS[i % 2], seed=i)])[0] for i in range(4)]
    assert [t.token_ids for t in shared[:4]] == [t.token_ids for t in alone]


def test_one_token_replies_cost_one_pass(engine):
    passes = Passes(engine)
    answer(engine, [ask(str(i), seed=i, max_tokens=1, order=i) for i in range(30)])
    assert [shape[0] for shape in passes.shapes] == [30]


def test_rows_that_are_done_leave_the_batch(engine):
    passes = Passes(engine)
    answer(engine, [ask(str(i), seed=i, max_tokens=n) for i, n in enumerate((1, 2, 2, 4))])
    assert [shape[0] for shape in passes.shapes] == [4, 3, 1, 1]


def test_no_batch_is_larger_than_allowed(policies):
    engine = TransformersEngine(policies, max_batch=8)
    passes = Passes(engine)
    answer(engine, [ask(str(i), seed=i, max_tokens=1, order=i) for i in range(20)])
    assert [shape[0] for shape in passes.shapes] == [8, 8, 4]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_several_policies_in_one_wave_keep_their_voices(make_policies, kind):
    engine = TransformersEngine(make_policies(kind, ("main", "rival"), spread=0.1))
    engine.policies.set_version("rival", 3)
    names = ["main", "rival", "base"] * 4
    requests = [
        ask("a", seed=1, policy=name, order=i, temperature=0) for i, name in enumerate(names)
    ]
    turns = answer(engine, requests)
    assert [t.policy for t in turns] == names
    assert [t.version for t in turns[:3]] == [0, 3, 0]
    voices = [{tuple(t.token_ids) for t in turns if t.policy == n} for n in names[:3]]
    assert [len(v) for v in voices] == [1, 1, 1]
    assert len(set.union(*voices)) == 3
    for name, voice in zip(names, voices, strict=False):
        alone = answer(engine, [ask("a", seed=1, policy=name, temperature=0)])[0]
        assert tuple(alone.token_ids) in voice


class Chatter(Game):
    """Says `rounds` things, and awaits a judge before each but the first, for `delay` seconds."""

    seats = ("s",)

    async def play(self, task: Task, table) -> Outcome:
        for i in range(task.data.get("rounds", 1)):
            for _ in range(task.data.get("ticks", 0)):
                await asyncio.sleep(0)
            if i and "delay" in task.data:
                await table.judge(_rule(task.data["delay"]))
            await table["s"].act(task.data.get("prompt", f"{task.id} {i}"))
        return Outcome(s=1.0)


async def _rule(delay: float) -> Verdict:
    await asyncio.sleep(delay)
    return Verdict("pass")


def jobs(tasks: list[dict], policy: str = "main") -> list[Job]:
    return [
        Job(
            str(i), "chatter", Chatter(), Task(str(i), data=data), i, {"s": policy}, "", frozenset()
        )
        for i, data in enumerate(tasks)
    ]


def played(engine: TransformersEngine, tasks: list[dict], **options):
    sampling = Sampling(max_tokens=options.pop("max_tokens", 3))
    return asyncio.run(
        collect(jobs(tasks), engine.act, sampling=sampling, outside=engine.outside, **options)
    )


def test_a_prompt_that_is_too_long_voids_only_its_own_game(engine):
    episodes = played(engine, [{}, {"prompt": "x" * 5000}, {}])
    assert [e.void is None for e in episodes] == [True, False, True]
    assert "4096 positions" in episodes[1].void and episodes[1].turns == []
    assert [len(e.turns) for e in episodes] == [1, 0, 1]
    with pytest.raises(PromptTooLong):
        answer(engine, [ask("x" * 4000, max_tokens=200)])


def test_games_in_flight_form_one_batch(engine):
    passes = Passes(engine)
    played(engine, [{"rounds": 3}] * 50, max_tokens=1)
    assert [shape[0] for shape in passes.shapes] == [50, 50, 50]


def test_games_that_take_a_moment_to_think_are_waited_for(engine):
    passes = Passes(engine)
    played(engine, [{"rounds": 3, "ticks": i % 2 * 5} for i in range(30)], max_tokens=1)
    assert [shape[0] for shape in passes.shapes] == [30, 30, 30]


def test_games_that_follow_fill_the_places_of_those_that_end(engine):
    passes = Passes(engine)
    played(engine, [{"rounds": 1 + i % 3} for i in range(30)], concurrency=10, max_tokens=1)
    assert sum(shape[0] for shape in passes.shapes) == 60
    assert [shape[0] for shape in passes.shapes][:5] == [10] * 5


@pytest.mark.parametrize("graphs", [None, False], ids=["paged", "plain"])
def test_a_judges_delay_changes_nothing(policies, graphs):
    """Where numbers depend on who shares a batch, games that need no judge do not run ahead of
    those that wait for one; where they do not, nobody waits, and the digits are the same."""
    found = []
    for delays in ((0.0, 0.0), (0.03, 0.0), (0.0, 0.05)):
        engine = TransformersEngine(policies, graphs=graphs)
        passes = Passes(engine)
        tasks = [
            {"rounds": 3, "delay": delays[i % 2]} if i % 3 else {"rounds": 3} for i in range(9)
        ]
        episodes = played(engine, tasks)
        rows = [shape for shape in passes.shapes if shape[1] > 1]
        said = [(t.token_ids, t.logprobs) for e in episodes for t in e.turns]
        found.append((rows if graphs is False else None, said))
        assert [len(e.verdicts) for e in episodes] == [2 if i % 3 else 0 for i in range(9)]
    if graphs is False:
        assert [shape[0] for shape in found[0][0]] == [9, 9, 9]
    assert found[0] == found[1] == found[2]


class Criticised(Game):
    """Its judges are players of the same engine, asked in every way that Python has; every third
    game has a program for a judge, which takes `delay` seconds."""

    seats = ("s", "critic")

    async def play(self, task: Task, table) -> Outcome:
        critic, n = table["critic"], int(task.id)

        async def panel() -> list[Turn]:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(critic.act(f"{n} {i}")) for i in range(2)]
            return [one.result() for one in asked]

        async def checked_panel() -> list[Turn]:
            await table.judge(_rule(task.data["delay"]))
            return await table.judge(panel())

        for i in range(2):
            await table["s"].act(f"{n} {i}")
            if n % 3 == 0:
                await table.judge(_rule(task.data["delay"]))
            await table.judge(critic.act(f"alone {n}"))
            await table.judge(asyncio.gather(critic.act(f"a {n}"), critic.act(f"b {n}")))
            begun = asyncio.create_task(critic.act(f"begun {n}"))
            await asyncio.sleep(0)  # its request is waiting before anybody judges
            await table.judge(begun)
            await table.judge(checked_panel())
        return Outcome(s=1.0, critic=0.0)


@pytest.mark.parametrize("graphs", [None, False], ids=["paged", "plain"])
def test_players_of_the_same_engine_can_be_judges(policies, graphs):
    found = []
    for delays in ((0.0, 0.0), (0.03, 0.0), (0.0, 0.05)):
        engine = TransformersEngine(policies, graphs=graphs)
        passes = Passes(engine)
        seating = {"s": "main", "critic": "base"}
        games = [
            Job(str(i), "c", Criticised(), Task(str(i), data={"delay": delays[i % 2]}), i, seating)
            for i in range(6)
        ]
        playing = collect(
            games, engine.act, sampling=Sampling(max_tokens=2), outside=engine.outside
        )
        episodes = asyncio.run(asyncio.wait_for(playing, 60))
        assert [(e.void, len(e.turns)) for e in episodes] == [(None, 14)] * 6
        rows = [shape for shape in passes.shapes if shape[1] > 1] if graphs is False else None
        found.append((rows, [(t.token_ids, t.logprobs) for e in episodes for t in e.turns]))
    assert found[0] == found[1] == found[2]


def test_without_lockstep_nobody_waits_for_a_judge(make_policies):
    engine = TransformersEngine(make_policies("lora"), lockstep=False)
    passes = Passes(engine)
    played(engine, [{"rounds": 2, "delay": 0.3}, {"rounds": 2}, {"rounds": 2}], max_tokens=1)
    assert [shape[0] for shape in passes.shapes] == [3, 2, 1]


def test_an_error_in_the_model_reaches_whoever_asked(engine):
    with pytest.raises(ValueError, match="no policy 'nobody'"):
        answer(engine, [ask("a", policy="nobody")])
    assert len(answer(engine, [ask("a")])) == 1, "and the engine lives on"


def test_requests_of_games_that_were_given_up_are_not_served(engine):
    async def give_up() -> None:
        waiting = [asyncio.create_task(engine.act(ask("a", seed=i))) for i in range(3)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(give_up())
    passes = Passes(engine)
    turns = answer(engine, [ask("b", seed=5, max_tokens=1)])
    assert len(turns) == 1
    assert [shape[0] for shape in passes.shapes] == [1]


@pytest.mark.parametrize("graphs", [None, False], ids=["paged", "plain"])
def test_weights_of_what_is_gone_are_freed_without_a_garbage_collection(
    make_policies, graphs
) -> None:
    """A league drops a member every few iterations, and evaluations drop whole engines. The garbage
    collector counts objects, not the tensors in them: what waits for it may be gigabytes."""
    policies = make_policies("full", names=("main", "old"))
    engine = TransformersEngine(policies, graphs=graphs)

    async def play(engine: TransformersEngine) -> None:
        await asyncio.gather(*(engine.act(ask("a", policy=name)) for name in ("main", "old")))
        while not engine._server.done():  # cancelled at the loop's end, it would keep its frames
            await asyncio.sleep(0)

    asyncio.run(play(engine))
    engine._thread.submit(int).result()  # a thread lets go of a call a moment after its result
    weights = {
        name: [weakref.ref(weight) for weight in policies.parameters(name).values()]
        for name in ("main", "old")
    }
    gc.collect()
    gc.disable()
    try:
        policies.remove("old")
        assert not any(weight() is not None for weight in weights["old"])
        del policies, engine
        assert not any(weight() is not None for weight in weights["main"])
    finally:
        gc.enable()
