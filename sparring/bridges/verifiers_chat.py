"""A harness for verifiers that needs no program of its own: each turn is one completion, asked for
in this process. Imported by verifiers as the plug-in `sparring_chat`."""

from __future__ import annotations

import sys
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire

__all__ = ["ChatHarness"]
PLUGIN = "sparring_chat"


class ChatConfig(vf.HarnessConfig):
    """Nothing to choose."""


class ChatHarness(vf.Harness[ChatConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with httpx.AsyncClient(timeout=None) as client:
            answer = await client.post(
                f"{endpoint.rstrip('/')}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        if answer.status_code != 200:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text[-2000:])
        text = answer.json()["choices"][0]["message"]["content"] or ""
        return vf.ProgramResult(exit_code=0, stdout=text, stderr="")


# verifiers imports plug-ins by the name of a module at the top.
sys.modules[PLUGIN] = sys.modules[__name__]
