"""Whatever a player writes, the control tokens of a prompt are the template's own."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sparring.core.types import Request, Sampling, Turn
from sparring.models.chat import RAW, Chat, control_tokens
from sparring.models.loading import nano_tokenizer

LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] "
    "+ '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
# Contents stand against each other and against the template's own words.
BARE = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '|>' }}{% endif %}"
)
LLAMA3_TOKENS = (
    *("<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|reserved_special_token_0|>"),
)


def tokenizer_of(
    template: str, added: list[AddedToken | str], eos: str, normalizer=None
) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    if normalizer is not None:
        core.normalizer = normalizer
    core.add_tokens(added)
    made = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=eos, eos_token=eos)
    made.chat_template = template
    return made


def special(*contents: str) -> list[AddedToken]:
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def invisible_removed() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("\u200b", "")])


CHATS = {
    "nano": Chat(nano_tokenizer()),
    "llama3": Chat(tokenizer_of(LLAMA3, special(*LLAMA3_TOKENS), "<|eot_id|>")),
    "bare": Chat(tokenizer_of(BARE, [*special("<|end|>"), "<think>", "</think>"], "<|end|>")),
    # Added tokens that are looked for after normalizing, by a normalizer that undoes defusing.
    "normalizing": Chat(
        tokenizer_of(LLAMA3, list(LLAMA3_TOKENS), "<|eot_id|>", invisible_removed())
    ),
}


def pieces(chat: Chat) -> st.SearchStrategy[str]:
    """Text out of control tokens, their beginnings and ends, and words."""
    marks = sorted(control_tokens(chat.tokenizer).values())
    cut = st.tuples(st.sampled_from(marks), st.integers(0, 24)).map(lambda c: c[0][: c[1]])
    rest = st.tuples(st.sampled_from(marks), st.integers(0, 24)).map(lambda c: c[0][c[1] :])
    other = st.sampled_from(["x", " ", "\n", "\u200b", "＜", "system", "the"])
    piece = st.one_of(st.sampled_from(marks), cut, rest, other)
    return st.lists(piece, min_size=1, max_size=6).map(lambda found: "".join(found) + ".")


def controls(chat: Chat, ids: list[int]) -> Counter[int]:
    """Of ids, by the tokenizer's own list: everything that was added to its vocabulary."""
    return Counter(i for i in ids if i in chat.tokenizer.added_tokens_decoder)


def request(*texts: str, role: str = "user", previous: Turn | None = None) -> Request:
    messages = [{"role": role, "content": text} for text in texts]
    return Request("s", "main", messages, Sampling(), 0, previous=previous)


@pytest.mark.parametrize("name", CHATS)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
)
@given(data=st.data())
def test_no_text_adds_a_control_token(name, data):
    chat = CHATS[name]
    first, second = data.draw(pieces(chat)), data.draw(pieces(chat))
    said = Turn("s", "main", "", "a", 0, chat.prompt_ids(request("x")), chat.encode("a"), [-1.0])
    for make in (
        lambda *texts: chat.prompt_ids(request(*texts)),
        lambda *texts: chat.prompt_ids(request(*texts, previous=said)),
        lambda *texts: chat.prompt_ids(request(texts[0], role=RAW)),
        lambda *texts: [*chain(*chat.demonstration(request(texts[0]).messages, texts[1]))],
    ):
        assert controls(chat, make(first, second)) == controls(chat, make("x", "x"))


@pytest.mark.parametrize("name", ["nano", "llama3"])
def test_a_role_cannot_be_written_by_a_player(name):
    """Every added token, also those that the tokenizer does not call special."""
    chat = CHATS[name]
    for mark in (token.content for token in chat.tokenizer.added_tokens_decoder.values()):
        ids = chat.prompt_ids(request(f"hello {mark} there"))
        assert controls(chat, ids) == controls(chat, chat.prompt_ids(request("hello")))
        text = chat.tokenizer.decode(ids)
        assert f"{mark[0]}\u200b{mark[1:]}" in text  # still readable for whoever is to judge it


def test_halves_in_two_messages_do_not_join():
    chat = CHATS["bare"]
    ids = chat.prompt_ids(request("so <thi", "nk> it is <|end"))
    assert not controls(chat, ids)
    assert "thi" in chat.decode(ids) and "it is" in chat.decode(ids)


def test_ordinary_text_is_left_alone():
    """Spaces and letters that a vocabulary adds for speed steer nothing."""
    chat = Chat(tokenizer_of(LLAMA3, [*special(*LLAMA3_TOKENS), "    ", "→"], "<|eot_id|>"))
    plain = request("if a < b:\n        café → |> x")
    expected = chat.tokenizer.apply_chat_template(plain.messages, add_generation_prompt=True)
    assert chat.prompt_ids(plain) == expected["input_ids"]
