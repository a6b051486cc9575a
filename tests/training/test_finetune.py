"""Demonstrations become a policy: what is learned from, how it resumes, where it can be used."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
import torch
from lives import Moment, facts, sparring

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling
from sparring.engines.load import load_engine
from sparring.learn.demonstrations import Demonstration, read_demonstrations, to_samples
from sparring.models.chat import Chat
from sparring.models.loading import load_model
from sparring.models.trained import find_trained

RECORDS = [
    {"system_prompt": "Be brief.", "user_prompt": f"{i}+{i}?", "output": f"{2 * i}"}
    for i in range(5)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def words(data: Path, out: Path, *more: object) -> tuple[object, ...]:
    small = ("--batch", 2, "--lr", "1e-2", "--lora-r", 4)
    return ("finetune", "--model", "nano", "--data", data, "--out", out, *small, *more)


def test_only_the_output_and_its_end_are_learned_from(data: Path):
    _, tokenizer = load_model("nano")
    chat = Chat(tokenizer)
    shown = read_demonstrations(str(data))
    sample = to_samples(chat, shown, "alice")[3]
    learned = [i for i, m in zip(sample.ids, sample.mask, strict=True) if m]
    asked = tokenizer.decode([i for i, m in zip(sample.ids, sample.mask, strict=True) if not m])
    assert tokenizer.decode(learned) == "6<|end|>"
    assert asked == "<|system|>Be brief.<|end|><|user|>3+3?<|end|><|assistant|>"
    assert sample.advantages == [float(m) for m in sample.mask] and sample.policy == "alice"
    # A demonstration that spells the end of a turn must not end it.
    evil = to_samples(chat, [Demonstration.of("", "hi", "a<|end|>b")])[0]
    assert evil.ids.count(tokenizer.eos_token_id) == 2


def test_what_the_engine_would_show_is_what_is_learned_after(data: Path):
    _, tokenizer = load_model("nano")
    chat = Chat(tokenizer)
    shown = read_demonstrations(str(data))[0]
    messages = [{"role": role, "content": text} for role, text in shown.messages]
    request = Request("a", "base", messages, Sampling(), 0)
    sample = to_samples(chat, [shown])[0]
    prompt = chat.prompt_ids(request)
    assert sample.ids[: len(prompt)] == prompt and not any(sample.mask[: len(prompt)])


def test_too_long_demonstrations_are_left_out(data: Path):
    chat = Chat(load_model("nano")[1])
    shown = [Demonstration.of("", "x" * n, "y") for n in (1, 5, 50)]
    samples = to_samples(chat, shown, limit=20)
    assert [len(s.ids) for s in samples] == [6, 10]


def test_a_fine_tuning_that_died_equals_one_that_did_not(tmp_path: Path, data: Path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    life = sparring(*words(data, unbroken, "--role", "alice"), cwd=tmp_path)
    assert life.code == 0, life.err
    for moment in (Moment(".step_000000.unfinished"), Moment(".step_000002.unfinished", 3)):
        again = words(data, broken, "--role", "alice", "--resume")
        life = sparring(*again, cwd=tmp_path, die_at=moment)
        assert life.code == -signal.SIGKILL, life.err
    life = sparring(*words(data, broken, "--role", "alice", "--resume", "--json"), cwd=tmp_path)
    assert life.code == 0, life.err
    assert json.loads(life.out)["policy"] == f"{broken}:alice"
    assert facts(broken) == facts(unbroken) and len(facts(broken)) == 3
    manifest = "checkpoints/step_000003/manifest.json"
    assert (broken / manifest).read_text() == (unbroken / manifest).read_text()


def test_the_folder_and_its_adapter_speak_alike_and_can_be_gone_on_from(tmp_path: Path, data: Path):
    out = tmp_path / "a"
    assert sparring(*words(data, out, "--role", "alice"), cwd=tmp_path).code == 0
    found = []
    for policy in (str(out), str(out / "adapter"), "nano"):
        engine, name = load_engine(policy, device="cpu", dtype="float32")
        with torch.no_grad(), engine.policies.using(name) as model:
            found.append(model(torch.tensor([[5, 6, 7]])).logits)
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
    trained = find_trained(str(out))
    assert trained is not None and trained.name == "alice"
    life = sparring(*words(data, tmp_path / "b", "--from", out, "--epochs", 1), cwd=tmp_path)
    assert life.code == 0, life.err
    first, on = facts(out)[0]["learn/loss"], facts(tmp_path / "b")[0]["learn/loss"]
    assert on < first
    turn = asyncio.run(
        engine.act(Request("x", name, [{"role": "user", "content": "?"}], Sampling(), 0))
    )
    assert turn.token_ids


def test_packed_demonstrations_teach_what_padded_ones_teach(tmp_path: Path, data: Path):
    options = ("--lora-dropout", 0, "--epochs", 2)  # dropout falls elsewhere in other rows
    found = []
    for name, more in (("padded", ()), ("packed", ("--packing",))):
        life = sparring(*words(data, tmp_path / name), *options, *more, cwd=tmp_path)
        assert life.code == 0, life.err
        found.append([line["learn/loss"] for line in facts(tmp_path / name)])
    assert found[1] == pytest.approx(found[0], abs=1e-4) and len(found[1]) == 2


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"user_prompt": "a"}, "no text under 'output'"),
        ({"user_prompt": "a", "output": " "}, "empty output"),
        ({"user_prompt": 3, "output": "b"}, "no text under 'user_prompt'"),
        ({"system_prompt": None, "user_prompt": "a", "output": "b"}, "'system_prompt'"),
    ],
)
def test_records_that_cannot_be_used_are_named(tmp_path: Path, record: dict, said: str):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=said):
        read_demonstrations(str(path))


def test_wrong_words_leave_nothing_behind(tmp_path: Path, data: Path):
    out = tmp_path / "out"
    for wrong in (
        ("--role", "a b"),
        ("--from", "nowhere"),
        ("--model", "no/such-model"),
        ("--data", tmp_path / "none.jsonl"),
    ):
        life = sparring(*words(data, out), *wrong, cwd=tmp_path)
        assert life.code == 2 and life.err.startswith("sparring: "), life.err
        assert not out.exists()


def test_a_folder_of_other_lessons_is_refused(tmp_path: Path, data: Path):
    out = tmp_path / "out"
    assert sparring(*words(data, out, "--epochs", 1), cwd=tmp_path).code == 0
    data.write_text(json.dumps(RECORDS[0]))
    life = sparring(*words(data, out, "--epochs", 1, "--resume"), cwd=tmp_path)
    assert life.code == 2 and "other lessons" in life.err
