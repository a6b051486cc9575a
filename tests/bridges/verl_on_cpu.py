"""verl's trainer on a CPU: gloo for NCCL, and transformers behind the interface of its vLLM server.
verl imports it in each of its processes (VERL_USE_EXTERNAL_MODULES); all else is verl's own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import ray
import torch
import torch.distributed
from verl.plugin.platform import platform_manager
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.utils import import_utils
from verl.workers.rollout import base, replica
from verl.workers.rollout.utils import ensure_async_iterator

SERVER = "vllm_server_0_0"


class Device:
    """What verl asks torch.cuda for, where there is none."""

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return 1, 1

    def get_device_name(self, *_: Any) -> str:
        return "cpu"

    def is_available(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name, lambda *_, **__: 0)


class OnCPU(PlatformCUDA):
    device_name = property(lambda self: "cpu")
    device_module = property(lambda self: Device())

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_ipc_supported(self) -> bool:
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Any:
        yield


def _nothing(self: Any, *_: Any, **__: Any) -> None:
    """Calls that only a GPU has a use for."""


for _name in ("set_device", "synchronize", "manual_seed", "manual_seed_all", "empty_cache",
              "set_allocator_settings"):  # fmt: skip
    setattr(OnCPU, _name, _nothing)


@ray.remote
class Server:
    """Ids in, ids and logprobs out, with the weights that the trainer sent last."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.steps: int | None = None

    async def load(self, weights: dict[str, torch.Tensor], steps: int | None) -> None:
        own = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in weights.items():
                own[name].copy_(tensor)
        self.steps = steps

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        ids = torch.tensor([prompt_ids])
        with torch.no_grad():
            made = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                temperature=sampling_params["temperature"],
                max_new_tokens=sampling_params["max_tokens"],
                output_logits=True,
                return_dict_in_generate=True,
                pad_token_id=0,
            )
        new = made.sequences[0, ids.shape[1] :].tolist()
        rows = (torch.log_softmax(row[0].float(), -1) for row in made.logits)
        return replica.TokenOutput(
            token_ids=new,
            log_probs=[float(row[token]) for row, token in zip(rows, new, strict=True)],
            stop_reason="completed",
            extra_fields={"global_steps": self.steps},
        )

    async def sleep(self) -> None:
        """There is no memory to give back."""


class Replica(replica.RolloutReplica):
    async def launch_servers(self) -> None:
        options = Server.options(name=SERVER, max_concurrency=100)  # type: ignore[attr-defined]
        self._server_handle = options.remote(self.model_config.path)
        self.servers, self._server_address = [self._server_handle], "127.0.0.1:1"


class Adapter(base.BaseRollout):
    async def resume(self, tags: list[str]) -> None:
        """The server is always awake."""

    async def release(self) -> None:
        """The server is always awake."""

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", **more: Any
    ) -> None:
        named = {name: t.detach().cpu().clone() async for name, t in ensure_async_iterator(weights)}
        await ray.get_actor(SERVER).load.remote(named, more.get("global_steps"))


def _init_process_group(backend: str, *args: Any, **kwargs: Any) -> None:
    _begin("gloo", *args, **kwargs)  # verl asks for one backend on each of two devices


import_utils.is_trl_available = lambda: False  # ours is newer than the one verl has value heads of
_begin = torch.distributed.init_process_group
torch.distributed.init_process_group = _init_process_group
platform_manager.set_platform(OnCPU())
base._ROLLOUT_REGISTRY["vllm", "async"] = f"{__name__}.Adapter"
replica.RolloutReplicaRegistry.register("vllm", lambda: Replica)
