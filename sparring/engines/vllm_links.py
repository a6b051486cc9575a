"""The two ways to vLLM: its asynchronous engine in this process, and a server over HTTP."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparring.core.types import Sampling, VoidGame
from sparring.engines.http_client import Line, ServerFailed
from sparring.engines.openai import ids_of
from sparring.run.servers import VllmConfig, width

log = logging.getLogger(__name__)

_WORKER = "sparring.engines.vllm_worker.LoadedWeights"


@dataclass(frozen=True, slots=True)
class Adapter:
    """One state of one policy. No two share a name: vLLM's caches go by it."""

    name: str
    number: int
    folder: Path
    digest: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class Weights:
    """Full weights of one policy: where they are in memory, and how to get them on disk."""

    tensors: dict[str, Any]
    write: Callable[[], Path]


@dataclass(slots=True)
class Spoken:
    token_ids: list[int]
    logprobs: list[float]
    finish: str
    adapter: str | None = None  # whose voice it was, as vLLM says


class Link(Protocol):
    """What stands between an engine and vLLM."""

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None, end: int
    ) -> Spoken:
        """`end`: a token that closes a reply, besides those that vLLM knows of."""

    async def load(self, adapter: Adapter) -> None: ...

    async def unload(self, adapter: Adapter) -> None: ...

    async def load_weights(self, weights: Weights) -> None:
        """Take these weights in place of the model's own."""

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def close(self) -> None: ...


class InProcess:
    """vLLM's asynchronous engine, started here."""

    def __init__(
        self, model: str, config: VllmConfig, *, rank: int | None, dtype: str, batch: int,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        """`rank`: of adapters; None: full weights are published instead, on a GPU by handles to its
        memory."""
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._by_handle = rank is None and device == "cuda"
        self._connected = False
        room = None if config.kv_cache_gb is None else int(config.kv_cache_gb * 2**30)
        self._llm: Any = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=model,
                dtype=dtype,  # type: ignore[arg-type,unused-ignore]
                max_model_len=config.max_model_len,
                gpu_memory_utilization=config.gpu_memory_utilization,
                tensor_parallel_size=config.tensor_parallel_size,
                kv_cache_memory_bytes=room,
                enforce_eager=config.eager,
                max_num_seqs=batch,
                worker_extension_cls=_WORKER,
                **(_lora_options(config, rank) if rank else _weight_transfer(self._by_handle)),
                enable_sleep_mode=config.sleep,
                # The learner computes logprobs at the sampling temperature; so must these be.
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
            )
        )
        self._asked = itertools.count()

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None, end: int
    ) -> Spoken:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k,
            max_tokens=how.max_tokens,
            stop=list(how.stop),
            stop_token_ids=[end],
            include_stop_str_in_output=True,
            seed=seed,
            logprobs=0,  # of the sampled token, and of no other
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        pieces = self._llm.generate(
            {"prompt_token_ids": prompt},
            params,
            str(next(self._asked)),
            lora_request=None if adapter is None else _lora(adapter),
        )
        try:
            *_, out = [piece async for piece in pieces]
        except ValueError as error:
            raise VoidGame(f"vLLM refused a request: {error}") from error
        completion = out.outputs[0]
        ids = list(completion.token_ids)
        logprobs = [row[token].logprob for row, token in zip(completion.logprobs, ids, strict=True)]
        spoke = getattr(out, "lora_request", None)
        finish = "length" if completion.finish_reason == "length" else "stop"
        return Spoken(ids, logprobs, finish, None if spoke is None else spoke.lora_name)

    async def load(self, adapter: Adapter) -> None:
        if await self._llm.add_lora(_lora(adapter)) is False:
            raise RuntimeError(f"it did not take the adapter {adapter.name}")
        asked = (adapter.number, str(adapter.folder))
        if not all(await self._llm.collective_rpc("sparring_adapter_is_loaded", args=asked)):
            raise RuntimeError(f"the adapter {adapter.name} has other weights than were written")

    async def load_weights(self, weights: Weights) -> None:
        if self._by_handle:
            await self._send_handles(weights.tensors)
        else:
            path = str(weights.write())
            await self._llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
            await self._llm.collective_rpc("sparring_pack_again")
            if not all(await self._llm.collective_rpc("sparring_weights_are_loaded", args=(path,))):
                raise RuntimeError("it has other weights than were written")
        if not await self._llm.reset_prefix_cache():
            raise RuntimeError("it kept what it had computed with the weights before")

    async def _send_handles(self, weights: dict[str, Any]) -> None:
        """vLLM's own weight transfer by CUDA IPC: its worker copies from this process's memory.
        Since an update has a start and an end (0.32; not 0.20), a handle is its arguments alone."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor
        from vllm.distributed.weight_transfer.base import (
            WeightTransferInitRequest,
            WeightTransferUpdateRequest,
        )

        in_parts = hasattr(self._llm, "start_weight_update")
        if not self._connected:
            request = WeightTransferInitRequest(init_info={"packed": False} if in_parts else {})
            await self._llm.init_weight_transfer_engine(request)
            self._connected = True
        tensors = [tensor.contiguous() for tensor in weights.values()]  # kept until they are read
        gpu = str(torch.cuda.get_device_properties(tensors[0].device).uuid)
        reduced = [reduce_tensor(tensor) for tensor in tensors]
        handles = [{gpu: whole[1] if in_parts else whole} for whole in reduced]
        info = {
            "names": list(weights),
            "dtype_names": [str(t.dtype).removeprefix("torch.") for t in tensors],
            "shapes": [list(t.shape) for t in tensors],
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
        }
        if in_parts:
            await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest(update_info=info))
        if in_parts:
            await self._llm.finish_weight_update()

    async def unload(self, adapter: Adapter) -> None:
        await self._llm.remove_lora(adapter.number)

    async def sleep(self) -> None:
        await self._llm.sleep(level=1)

    async def wake(self) -> None:
        await self._llm.wake_up()

    async def close(self) -> None:
        self._llm.shutdown()
        self._llm = None  # or it would be shut down again when the interpreter is half gone


class OverHttp:
    """A vLLM server that was started with --enable-lora --logprobs-mode processed_logprobs and
    with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and that reads the same disk."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._asleep = False

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None, end: int
    ) -> Spoken:
        body = {
            "model": self.line.server.model if adapter is None else adapter.name,
            "prompt": prompt,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "top_k": how.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,  # a server may have another by default, from the model
            "max_tokens": how.max_tokens,
            "stop": list(how.stop),
            "stop_token_ids": [end],
            "include_stop_str_in_output": True,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            **self.line.server.body,
        }
        return await self.line.post("completions", body, self._read)

    def _read(self, data: bytes) -> Spoken:
        reply = json.loads(data)
        choice = reply["choices"][0]
        _, ids, logprobs = ids_of(reply, choice)
        if not ids:
            raise ValueError("it holds no token ids and logprobs, which learning needs")
        self.line.count(reply)
        finish = "length" if choice["finish_reason"] == "length" else "stop"
        return Spoken(ids, logprobs, finish, reply.get("model"))

    async def load(self, adapter: Adapter) -> None:
        wanted = {"lora_name": adapter.name, "lora_path": str(adapter.folder)}
        await self.line.post("load_lora_adapter", wanted, bytes)
        # The name alone would not tell of a server that has kept other weights under it.
        models = {model.get("id"): model for model in await self.line.models()}
        if models and adapter.name not in models:
            raise RuntimeError(f"its list of models does not have the adapter {adapter.name}")
        root = models.get(adapter.name, {}).get("root")
        if root not in (None, str(adapter.folder)):
            raise RuntimeError(f"it has {adapter.name} from {root}, not from {adapter.folder}")

    async def unload(self, adapter: Adapter) -> None:
        await self.line.post("unload_lora_adapter", {"lora_name": adapter.name}, bytes)

    async def load_weights(self, weights: Weights) -> None:
        """Only servers in VLLM_SERVER_DEV_MODE=1 can."""
        wanted = {"method": "reload_weights", "kwargs": {"weights_path": str(weights.write())}}
        await self.line.post("/collective_rpc", wanted, bytes)
        await self.line.post("/reset_prefix_cache", {}, bytes)

    async def sleep(self) -> None:
        """Only servers in VLLM_SERVER_DEV_MODE=1 can; others keep their memory."""
        try:
            await self.line.post("/sleep?level=1", {}, bytes)
            self._asleep = True
        except ServerFailed as failed:
            log.warning("vLLM keeps its memory while the learner learns: %s", failed)

    async def wake(self) -> None:
        if self._asleep:
            await self.line.post("/wake_up", {}, bytes)
            self._asleep = False

    async def close(self) -> None:
        await self.line.close()


def _lora_options(config: VllmConfig, rank: int) -> dict[str, Any]:
    return {"enable_lora": True, "max_loras": config.max_loras, "max_lora_rank": width(rank)}


def _weight_transfer(by_handle: bool) -> dict[str, Any]:
    if not by_handle:
        return {}
    from vllm.config import WeightTransferConfig

    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # handles are pickled; both ends are ours
    return {"weight_transfer_config": WeightTransferConfig(backend="ipc")}


def _lora(adapter: Adapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.name, adapter.number, str(adapter.folder))
