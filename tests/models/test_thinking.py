"""Thinking models: thoughts apart from the answer, dropped from later prompts or kept as the chat
template says, with the very ids that were sampled."""

import asyncio
from itertools import pairwise

import pytest
from thinking_models import letters_and_tags, tokenizer_of

from sparring.core.collect import Job, collect
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import BASE, Request, Sampling, Task, Turn
from sparring.credit.samples import join
from sparring.engines.local.engine import TransformersEngine
from sparring.models.chat import Chat
from sparring.models.policies import FullPolicies
from sparring.models.thinking import split_partial, split_thinking


def next_prompt(chat: Chat, reply: str) -> str:
    """What is asked after this reply to a first question, as text."""
    first = Request("s", BASE, [{"role": "user", "content": "hi"}], Sampling(), 0)
    turn = Turn("s", BASE, "hi", "", prompt_ids=chat.prompt_ids(first))
    turn.token_ids = chat.encode(reply)
    second = Request("s", BASE, [{"role": "user", "content": "so?"}], Sampling(), 0, previous=turn)
    return chat.tokenizer.decode(chat.prompt_ids(second))


HI, SO = "<|im_start|>user\nhi<|im_end|>\n", "<|im_end|>\n<|im_start|>user\nso?<|im_end|>\n"
A = "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("past", "opening", "reply", "expected"),
    [
        ("drops", "", "<think>\nhm\n</think>\n\nfour<|im_end|>", HI + A + "four" + SO + A),
        ("drops", "", "four<|im_end|>", HI + A + "four" + SO + A),
        ("drops", "", "<think>\nhm", HI + A + SO + A),  # cut off before it answered
        ("drops", "", "<think>\nhm<|im_end|>", HI + A + SO + A),
        ("drops", "<think>\n", "hm</think>four<|im_end|>",
         HI + A + "four" + SO + A + "<think>\n"),
        ("drops", "<think>\n", "hm", HI + A + SO + A + "<think>\n"),
        ("keeps", "", "<think>hm</think>four<|im_end|>",
         HI + A + "<think>hm</think>four" + SO + A),
    ],
)  # fmt: skip
def test_later_prompts_are_as_the_template_writes_them(past, opening, reply, expected) -> None:
    chat = Chat(tokenizer_of(past, opening))
    assert next_prompt(chat, reply) == expected
    if past == "drops" and "</think>" in reply:  # the template itself, given the whole reply
        words = [("user", "hi"), ("assistant", reply.removesuffix("<|im_end|>")), ("user", "so?")]
        messages = [{"role": role, "content": text} for role, text in words]
        assert expected == chat.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )


def test_the_answers_ids_are_those_that_were_sampled() -> None:
    """A word can be spelled in several ways: the way it was sampled stays."""
    tokenizer = tokenizer_of()
    tokenizer.add_tokens(["fo", "ur", "four"])
    chat = Chat(tokenizer)
    ids = [tokenizer.convert_tokens_to_ids(t) for t in ("<think>", "</think>", "fo", "ur")]
    first = Turn("s", BASE, "hi", "", prompt_ids=[1, 2], token_ids=ids)
    question = [{"role": "user", "content": "so?"}]
    prompt = chat.prompt_ids(Request("s", BASE, question, Sampling(), 0, previous=first))
    assert prompt[:4] == [1, 2, *ids[2:]] and chat.split(ids) == ("", "four")


def test_a_template_without_thoughts_and_one_whose_tags_are_no_tokens_change_nothing() -> None:
    plain = tokenizer_of()
    plain.chat_template = plain.chat_template.replace("</think>", "")
    assert Chat(plain).thinking is None
    chat = Chat(plain)
    ids = chat.encode("<think>hm</think>4")
    assert chat.split(ids) == ("", "<think>hm</think>4")


class Talk(Game):
    """Two seats who speak in turn, three times each, and are shown what the other answered."""

    seats = ("a", "b")

    async def play(self, task: Task, table: Table) -> Outcome:
        said = {"a": "begin", "b": ""}
        for number in range(6):
            seat, other = ("a", "b") if number % 2 == 0 else ("b", "a")
            turn = await table[seat].reply(said[seat])
            said[other] = turn.text or "nothing"
        return Outcome({"a": 1.0, "b": -1.0})


@pytest.mark.parametrize("past", ["drops", "keeps"])
def test_self_play_of_several_turns_keeps_ids_and_hides_thoughts(past: str) -> None:
    tokenizer = tokenizer_of(past)
    model = letters_and_tags(tokenizer)
    closed = tokenizer.convert_tokens_to_ids("</think>")
    policies = FullPolicies(model, tokenizer)
    policies.add("main")
    engine, game = TransformersEngine(policies), Talk()
    seats = {"a": "main", "b": "main"}
    jobs = [Job(str(i), "g", game, game.task(i), i, seats) for i in range(4)]
    plan = Sampling(max_tokens=12)
    episodes = asyncio.run(collect(jobs, engine.act, sampling=plan))
    chat, thought = engine.chat, 0
    for episode in episodes:
        assert episode.void is None
        for seat in game.seats:
            turns = [turn for turn in episode.turns if turn.seat == seat]
            for before, turn in pairwise(turns):
                assert chat.split(before.token_ids) == (before.thoughts, before.text)
                whole = [*before.prompt_ids, *before.token_ids]
                start = chat.thinking.answer_start(before.token_ids)
                if past == "keeps" or not start:
                    assert turn.prompt_ids[: len(whole)] == whole
                    continue
                thought += bool(before.thoughts and before.text)
                kept = [*before.prompt_ids, *before.token_ids[start:]]
                assert turn.prompt_ids[: len(kept)] == kept
                assert closed not in turn.prompt_ids
    assert thought or past == "keeps", "no reply had thoughts, so nothing was tried"
    for episode in episodes:  # what is learned from is what was sampled, after its own prompt
        for seat in game.seats:
            turns = [turn for turn in episode.turns if turn.seat == seat]
            samples = join([(turn, 1.0) for turn in turns])
            learned = [i for s in samples for i, m in zip(s.ids, s.mask, strict=True) if m]
            assert learned == [i for turn in turns for i in turn.token_ids]
            thoughts = sum(chat.thinking.answer_start(t.token_ids) > 0 for t in turns[:2])
            assert len(samples) == (1 + thoughts if past == "drops" else 1)


def test_texts_are_split_where_there_are_no_ids() -> None:
    assert split_thinking("<think>\nhm\n</think>\n\n4") == ("hm", "4")
    assert split_thinking("hm</think>4") == ("hm", "4"), "the template opened them"
    assert split_thinking("<think>hm") == ("hm", "")
    assert split_thinking("hm", opened=True) == ("hm", "")
    assert split_thinking("4") == ("", "4")


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    ("opening", "reply", "thoughts", "answer"),
    [
        ("", "<think>\nhm < a\n</think>\n\nfour <b>", "hm < a", "four <b>"),
        ("", "four <b", "", "four <b"),
        ("", "<think>\nhm", "hm", ""),
        ("<think>\n", "hm\n</think>\n\nfour", "hm", "four"),
        ("<think>\n", "hm", "hm", ""),
        # What has been passed on stays: the first end counts, and where none began there is none.
        ("", "<think>hm</think>four</think>five", "hm", "four</think>five"),
        ("", "hm</think>four", "", "hm</think>four"),
    ],
)
def test_thoughts_apart_in_a_reply_that_goes_on(opening, reply, thoughts, answer, special) -> None:
    """Of every beginning: nothing is passed on that is taken back later. Also where the tokenizer
    calls the tags special, and leaves them out of texts."""
    chat = Chat(tokenizer_of("drops", opening, special=special))
    ids, pieces, sent = chat.encode(reply), list[str](), ("", "")
    on_token = chat.streamed(pieces.append)
    for number, token in enumerate(ids, 1):
        on_token(token)
        done, opened = number == len(ids), chat.thinking.opened
        parts = split_partial("".join(pieces), opened=opened, done=done)
        assert all(part.startswith(before) for part, before in zip(parts, sent, strict=True))
        sent = parts
    assert sent == (thoughts, answer) and "".join(pieces) == reply
    if (reply + answer).count("</think>") <= 1 and opening + thoughts:
        assert chat.split(ids) == sent, "as a reply that is split when it is complete"


def test_a_piece_of_a_long_reply_costs_no_more_than_one_of_a_short_one(monkeypatch) -> None:
    chat = Chat(tokenizer_of())
    decoded, on_token = list[int](), chat.streamed(lambda text: None)
    monkeypatch.setattr(
        chat, "spoken", lambda ids, whole: decoded.append(len(ids)) or "x" * len(ids)
    )
    for token in range(300):
        on_token(token % 100)
    assert max(decoded) <= 2
