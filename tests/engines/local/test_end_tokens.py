"""A base model whose template closes a reply with a token that nothing else calls an end, as those
of Qwen2.5 and Qwen3 do."""

from __future__ import annotations

import asyncio

import pytest
from thinking_models import letters_and_tags, tokenizer_of

from sparring.core.types import BASE, Request, Sampling, Turn
from sparring.engines.local.engine import TransformersEngine
from sparring.models.policies import FullPolicies


@pytest.mark.parametrize("graphs", [None, False])
def test_a_reply_ends_where_the_template_closes_it(graphs: bool | None) -> None:
    tokenizer = tokenizer_of("keeps")
    tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})
    model = letters_and_tags(tokenizer)
    closing = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.get_output_embeddings().weight.data[closing, 0] = 0.0
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    engine = TransformersEngine(FullPolicies(model, tokenizer), graphs=graphs)
    assert engine.chat.end_id == closing != tokenizer.eos_token_id

    async def answers() -> list[Turn]:
        asked, plan = [{"role": "user", "content": "hi"}], Sampling(max_tokens=40)
        requests = (Request("s", BASE, asked, plan, seed, (seed,)) for seed in range(6))
        return list(await asyncio.gather(*map(engine.act, requests)))

    turns = asyncio.run(answers())
    assert any(turn.finish == "stop" for turn in turns)
    for turn in turns:
        assert closing not in turn.token_ids[:-1]
        assert (turn.finish == "stop") == (turn.token_ids[-1] == closing)
