"""Any causal language model can be asked: without a chat template, and without a system role."""

import json
import logging
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

from sparring.cli.app import app
from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling, Turn
from sparring.models.chat import Chat
from sparring.models.loading import ModelMissing, load_model
from sparring.models.template import settle_template
from sparring.run.config import make_config

# As Gemma's and Mistral's: user and assistant in turns, and an error for anything else.
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)
# One that leaves a system message out without a word.
DEAF = STRICT.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


def tokenizer_like_codellamas() -> PreTrainedTokenizerFast:
    """<s> and </s>, <s> before every text, and no chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", "</s>"])
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 256)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")


def save(folder: Path, template: str | None = None, make: str = "llama") -> str:
    tokenizer = tokenizer_like_codellamas()
    tokenizer.chat_template = template
    size = {"vocab_size": len(tokenizer), "bos_token_id": 256, "eos_token_id": 257}
    torch.manual_seed(0)
    if make == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=4096, **size)
        )
    elif make == "neox":
        model = GPTNeoXForCausalLM(
            GPTNeoXConfig(
                hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=4096, **size,
            )
        )  # fmt: skip
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=4096, **size,
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=[None, STRICT], ids=["none", "strict"])
def folder(request, tmp_path) -> str:
    return save(tmp_path / "model", request.param)


def test_the_plain_template_and_one_line_about_it(tmp_path, caplog):
    path = save(tmp_path / "model")
    with caplog.at_level(logging.INFO):
        _, tokenizer = load_model(path)
    chat = Chat(tokenizer)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    assert chat.render(messages) == (
        "<s>### System:\nBe brief.\n\n### User:\n2+2?\n\n### Assistant:\n"
    )
    assert chat.end_id == tokenizer.eos_token_id
    lines = [r.getMessage() for r in caplog.records if path in r.getMessage()]
    assert len(lines) == 1 and "no chat template" in lines[0] and "template:" in lines[0]
    # Who writes no <s> before a text gets none from the template either.
    tokenizer.chat_template = None
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel()
    settle_template(tokenizer, None, "other")
    assert Chat(tokenizer).render(messages).startswith("### System:")


def test_a_reply_under_the_plain_template_goes_on_id_for_id(tmp_path):
    chat = Chat(load_model(save(tmp_path / "model"))[1])
    ask = Request("s", "main", [{"role": "user", "content": "one"}], Sampling(), 0)
    prompt = chat.prompt_ids(ask)
    said = [*chat.encode("two"), chat.end_id]
    first = Turn("s", "main", "one", "two", 0, prompt, said, [-1.0] * len(said))
    more = Request("s", "main", [{"role": "user", "content": "three"}], Sampling(), 0)
    ids = chat.prompt_ids(Request(**{**_fields(more), "previous": first}))
    whole = [("user", "one"), ("assistant", "two"), ("user", "three")]
    expected = chat.render([{"role": r, "content": c} for r, c in whole])
    assert chat.tokenizer.decode(ids) == expected
    assert expected.count("</s>") == 1


def _fields(request: Request) -> dict:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@pytest.mark.parametrize("template", [STRICT, DEAF])
def test_system_text_opens_the_users_message_where_there_is_no_system_role(
    template, tmp_path, caplog
):
    path = save(tmp_path / "model", template)
    with caplog.at_level(logging.INFO):
        _, tokenizer = load_model(path)
    chat = Chat(tokenizer)
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}
    assert chat.render([system, user]) == "<s>[INST] Be brief.\n\n2+2? [/INST]"
    assert chat.render([user]) == "<s>[INST] 2+2? [/INST]"
    four = {"role": "assistant", "content": "4"}
    assert chat.render([system, user, four, user]) == (
        "<s>[INST] Be brief.\n\n2+2? [/INST]4</s>[INST] 2+2? [/INST]"
    )
    assert chat.render([system]) == "<s>[INST] Be brief. [/INST]"
    assert sum("without a system role" in r.getMessage() for r in caplog.records) == 1
    # Saved, it is a template like any other: whoever loads the model asks it the same way.
    tokenizer.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    text = again.apply_chat_template([system, user], tokenize=False, add_generation_prompt=True)
    assert text == chat.render([system, user])


def test_a_models_own_template_stays_as_it_is(caplog):
    with caplog.at_level(logging.INFO):
        _, tokenizer = load_model("nano")
    text = Chat(tokenizer).render([{"role": "system", "content": "a"}])
    assert text == "<|system|>a<|end|><|assistant|>"
    assert not caplog.records


def test_the_key_takes_jinja_a_file_or_plain_and_the_run_keeps_the_text(tmp_path):
    file = tmp_path / "chat.jinja"
    file.write_text(STRICT)
    assert make_config({"template": str(file)}).template == STRICT
    assert make_config({"template": STRICT}).template == STRICT
    path = save(tmp_path / "model", STRICT)
    _, tokenizer = load_model(path, template="plain")
    assert Chat(tokenizer).render([{"role": "user", "content": "a"}]).startswith("<s>### User:")
    _, tokenizer = load_model(
        "nano", template="{% for m in messages %}{{ m.content }}|{% endfor %}"
    )
    assert Chat(tokenizer).render([{"role": "user", "content": "a"}]) == "a|"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}{{ m.content }", "cannot write a conversation"),
        ("{{ 'nothing of it' }}", "leaves out messages"),
    ],
)
def test_a_template_that_writes_no_conversation_is_refused(template, words):
    with pytest.raises(ConfigError, match=words):
        load_model("nano", template=template)


def test_a_template_that_is_neither_file_nor_jinja_is_refused():
    with pytest.raises(ConfigError, match=r"'chat\.jinja' is no Jinja, and no file"):
        make_config({"template": "chat.jinja"})


def test_the_models_own_end_serves_a_tokenizer_that_names_none(tmp_path):
    save(tmp_path / "model")
    names = tmp_path / "model" / "tokenizer_config.json"
    told = json.loads(names.read_text())
    del told["eos_token"]
    names.write_text(json.dumps(told))
    assert load_model(str(tmp_path / "model"))[1].eos_token == "</s>"
    for file in ("config.json", "generation_config.json"):
        shape = json.loads((tmp_path / "model" / file).read_text())
        shape["eos_token_id"] = None
        (tmp_path / "model" / file).write_text(json.dumps(shape))
    with pytest.raises(ModelMissing, match="no end-of-text token"):
        load_model(str(tmp_path / "model"))


def run(*words: str) -> str:
    found = CliRunner().invoke(app, [*words])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output


SMALL = (
    *("engine.device=cpu", "engine.dtype=float32", "learn.weights=lora", "iterations=1"),
    *("sampling.max_tokens=4", "evaluate.final=0", "evaluate.games=0", "evaluate.ladder=0"),
)


def test_a_run_trains_plays_and_is_evaluated(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [*SMALL, f"policy={folder}", "collect.episodes=4", "games.tictactoe.style=short"]
    run("train", "tictactoe", *options, "--run", "run")
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["iteration"] == 1
    run("arena", "run", "--against", "random", "--games", "2", "--json")
    run("arena", folder, "--against", "random", "--game", "tictactoe", "--games", "2")
    moves = CliRunner().invoke(app, ["play", "tictactoe", "--policy", folder], input="1\n" * 9)
    assert moves.exit_code == 0, (moves.output, moves.exception)
    run("selfplay", "tictactoe", "--policy", folder, "--games", "2", "--out", "games")
    run("eval", "gsm8k", "--policy", folder, "--data", "shipped:word_problems", "--problems", "2",
        "--max-tokens", "4")  # fmt: skip
    lines = [{"system_prompt": "Be brief.", "user_prompt": "2+2?", "output": "4"}]
    (tmp_path / "shown.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("finetune", "--model", folder, "--data", "shown.jsonl", "--out", "sft", "--epochs", "1")
    run("merge", "--policy", "sft", "--out", "merged")
    run("solve", "--checkpoint", "sft", "--problem", "Add two numbers.", "--max-tokens", "4")
    _, tokenizer = load_model(str(tmp_path / "merged"))
    assert "Be brief." in Chat(tokenizer).render(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    )


def test_the_phases_of_mathematics_keep_to_the_template(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "model")
    keys = [f"policy={path}", "template=plain", "math.sft.questions=2", "math.sft.epochs=1"]
    keys += ["math.gsm8k.problems=2", "math.gsm8k.max_tokens=4", "engine.dtype=float32"]
    run("math", "eval", "--smoke", "--policy", path, "--out", "base.jsonl", *keys)
    run("math", "sft", "--smoke", "--out", "sft", *keys)
    _, tokenizer = load_model(str(tmp_path / "sft" / "merged"))
    assert "'### '" in tokenizer.chat_template


@pytest.mark.parametrize("make", ["gpt2", "neox"])
def test_models_of_other_makes_train_too(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "model", None, make)
    run("train", "tictactoe", *SMALL, f"policy={path}", "collect.episodes=4", "--run", "run")
    metrics = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert metrics["learn/canary"] < 0.01
