"""What vLLM's own worker processes are asked for: whether the weights they have are the ones that
were written for them. vLLM mixes this class into its worker (`worker_extension_cls`)."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.engines.published import checksum

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


class LoadedWeights:
    model_runner: Any

    def sparring_adapter_is_loaded(self, number: int, folder: str) -> bool:
        """Whether the adapter with this number holds the weights in this folder."""
        try:
            adapters = self.model_runner.lora_manager._adapter_manager._registered_adapters
            adapter = adapters.get(number)
        except AttributeError as error:  # another version of vLLM, which keeps them elsewhere
            log.warning("this vLLM does not show which adapters it has loaded: %s", error)
            return True
        return adapter is not None and _sums(adapter.loras) == _file_sums(adapter.loras, folder)

    def sparring_pack_again(self) -> None:
        """On a CPU vLLM multiplies with packed copies, and `reload_weights` leaves that of a head
        which shares its weights with the embedding as it was."""
        modules = list(self.model_runner.get_model().modules())
        packed = [m for m in modules if hasattr(m, "cpu_linear") and m.weight.numel()]
        if packed:
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            for module in packed:
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)

    def sparring_weights_are_loaded(self, folder: str) -> bool:
        """Whether the model holds the weights in this folder, of those that vLLM keeps under the
        checkpoint's own names and shapes: fused and sharded ones are not compared."""
        from safetensors import safe_open

        own = dict(self.model_runner.get_model().named_parameters())
        for path in Path(folder).glob("*.safetensors"):
            with safe_open(path, "pt") as weights:
                for name in set(weights.keys()) & own.keys():
                    there, here = weights.get_tensor(name), own[name].detach().cpu()
                    if there.shape == here.shape and not there.to(here.dtype).equal(here):
                        log.warning("%s is not what was written to %s", name, folder)
                        return False
        return True


def _parts(lora: Any) -> list[tuple[Any, Any, float]]:
    """Down, up and scale of each matrix of a layer, which may be several fused ones."""
    if not isinstance(lora.lora_a, list):
        return [(lora.lora_a, lora.lora_b, lora.scaling)]
    parts = zip(lora.lora_a, lora.lora_b, lora.scaling, strict=True)
    return [(down, up, scale) for down, up, scale in parts if down is not None]


def _sums(loras: dict[str, Any]) -> Counter[str]:
    """Checksums of all matrices of an adapter, the scale multiplied in. Without their names: vLLM
    has others."""
    parts = [part for lora in loras.values() for part in _parts(lora)]
    return Counter(_sum(tensor) for down, up, scale in parts for tensor in (down, up * scale))


def _file_sums(loras: dict[str, Any], folder: str) -> Counter[str]:
    from safetensors.torch import load_file

    from sparring.models.trained import ADAPTER_WEIGHTS

    config = json.loads((Path(folder) / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    dtype = _parts(next(iter(loras.values())))[0][0].dtype
    state = load_file(Path(folder) / ADAPTER_WEIGHTS)
    return Counter(
        _sum(tensor.to(dtype) * (1 if ".lora_A." in name else scale))
        for name, tensor in state.items()
    )


def _sum(tensor: Tensor) -> str:
    return checksum({"": tensor.cpu()})
