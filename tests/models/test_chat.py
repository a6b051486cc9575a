"""Messages become ids once; what was sampled is carried over id for id."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sparring.core.types import Request, Sampling, Turn
from sparring.credit.samples import join
from sparring.models.chat import Chat
from sparring.models.loading import nano_tokenizer

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = [("t", "h"), ("th", "e"), ("a", "a")]  # so that the same text can be cut in several ways


def chatml_tokenizer(eos: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "aa"]
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(alphabet)}, merges=MERGES))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|endoftext|>", eos_token=eos
    )
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture(params=["nano", "chatml", "other_eos"])
def chat(request) -> Chat:
    """Nano's template, one like ChatML, and one whose turns close with something else than eos."""
    if request.param == "nano":
        return Chat(nano_tokenizer())
    return Chat(chatml_tokenizer("<|endoftext|>" if request.param == "other_eos" else "<|im_end|>"))


def closer(chat: Chat) -> str:
    return "<|end|>" if "<|end|>" in chat.tokenizer.chat_template else "<|im_end|>"


def ask(text: str, previous: Turn | None = None) -> Request:
    messages = [{"role": "user", "content": text}]
    return Request("s", "main", messages, Sampling(), 0, previous=previous)


def say(chat: Chat, request: Request, ids: list[int]) -> Turn:
    prompt_ids = chat.prompt_ids(request)
    return Turn(
        "s", "main", "", chat.decode(ids), 0, prompt_ids, ids, [-1.0] * len(ids), trainable=True
    )


def text_of(chat: Chat, ids: list[int]) -> str:
    return str(chat.tokenizer.decode(ids, skip_special_tokens=False))


@pytest.mark.parametrize("closed", [True, False])
def test_a_reply_goes_on_id_for_id(chat, closed):
    """The reply is cut into tokens as no tokenizer would cut it, and stays so."""
    tokenizer = chat.tokenizer
    said = [tokenizer.convert_tokens_to_ids(c) for c in "theaa"]
    can_differ = "the" in tokenizer.get_vocab()
    assert (tokenizer.encode("theaa", add_special_tokens=False) != said) == can_differ
    if closed:
        said.append(tokenizer.convert_tokens_to_ids(closer(chat)))
    first = say(chat, ask("one"), said)
    ids = chat.prompt_ids(ask("two", first))
    assert ids[: len(first.prompt_ids) + len(said)] == [*first.prompt_ids, *said]
    # And the whole reads as the template would have written it.
    whole = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "theaa"},
        {"role": "user", "content": "two"},
    ]
    assert text_of(chat, ids) == chat.render(whole)
    assert text_of(chat, ids).count(closer(chat)) == chat.render(whole).count(closer(chat))


def test_a_third_reply_extends_the_second(chat):
    end = chat.tokenizer.convert_tokens_to_ids(closer(chat))
    turns: list[Turn] = []
    for word in ("one", "two", "three"):
        request = ask(word, turns[-1] if turns else None)
        turns.append(say(chat, request, [chat.tokenizer.convert_tokens_to_ids("a"), end]))
    samples = join([(turn, float(i)) for i, turn in enumerate(turns)])
    assert len(samples) == 1
    sample = samples[0]
    assert sample.ids == [*turns[2].prompt_ids, *turns[2].token_ids]
    assert sum(sample.mask) == 6
    assert [a for a, m in zip(sample.advantages, sample.mask, strict=True) if m] == [
        *[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    ]
    said = [i for i, m in zip(sample.ids, sample.mask, strict=True) if m]
    assert said == [i for turn in turns for i in turn.token_ids]


def test_the_prompt_is_what_the_template_writes(chat):
    ids = chat.prompt_ids(ask("two words"))
    assert text_of(chat, ids) == chat.render([{"role": "user", "content": "two words"}])
    assert ids == chat.prompt_ids(ask("two words"))


def test_callers_may_change_the_ids_they_get(chat):
    expected = chat.prompt_ids(ask("x"))
    chat.prompt_ids(ask("x")).append(7)
    assert chat.prompt_ids(ask("x")) == expected


def test_a_placeholder_in_the_words_does_no_harm(chat):
    first = say(chat, ask("⁂reply⁂"), [chat.tokenizer.convert_tokens_to_ids("a")])
    ids = chat.prompt_ids(ask("again ⁂reply⁂", first))
    assert text_of(chat, ids).count("⁂reply⁂") == 2
    assert ids[: len(first.prompt_ids)] == first.prompt_ids


def test_decoding_leaves_special_tokens_out(chat):
    ids = [chat.tokenizer.convert_tokens_to_ids(t) for t in ("a", "b", closer(chat))]
    assert chat.decode(ids) == "ab"
