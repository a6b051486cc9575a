"""Memory and time of the adversary by model and GPU, on paper: the recipe's batches, the models'
shapes, the vendors' figures, and the constants of scale_model.py. Nothing of this is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scale_model import GB, Constants, Model

MODELS = (
    Model("SmolLM2-135M", 30, 576, 1536, 9, 3, 24576),  # tied: half its 49,152 words, twice
    Model("Qwen2.5-Coder-1.5B", 28, 1536, 8960, 12, 2, 75968),  # tied, likewise
    Model("CodeLlama-7b", 32, 4096, 11008, 32, 32, 32016),
)


@dataclass(frozen=True)
class Gpu:
    """The vendor's: memory, bytes/s of it, 16-bit operations/s."""

    name: str
    memory_gb: float
    memory_bw: float
    flops: float
    tokens: int  # learn.tokens_per_batch that run/machine.py chooses there


GPUS = (
    Gpu("T4 16 GB", 16, 0.32e12, 65e12, 4096),
    Gpu("V100 16 GB", 16, 0.9e12, 125e12, 4096),
    Gpu("A100 40 GB", 40, 1.55e12, 312e12, 16384),
    Gpu("H100 80 GB", 80, 3.35e12, 990e12, 32768),
    Gpu("H200 141 GB", 141, 4.8e12, 990e12, 65536),
)
# The recipe `adversarial`: games, tokens of the generator's stages one after another, the
# discriminator's beside them, a prompt of 400 tokens, epochs, iterations.
GAMES, STAGES, TESTS, PROMPT, EPOCHS, ITERATIONS = 128, 4 * 48 + 128, 96, 400, 2, 30


def kept_per_token(model: Model) -> int:
    """Bytes that a layer keeps for its backward pass; 24 kB for SmolLM2, as measured."""
    return 2 * (10 * model.hidden + 4 * model.inner) * model.layers


def memory(model: Model, tokens: int) -> float:
    """Weights, two adapters with gradients and Adam's moments, activations. Keys and values take
    two fifths of what is left (engine.cache_gb), and games go in parts where that is little."""
    adapters = 2 * 4 * model.adapter_bytes()
    return model.weights_bytes + adapters + tokens * kept_per_token(model)


def seconds(model: Model, gpu: Gpu) -> float:
    """Generating and learning of the whole run; judging and loading come on top."""
    c = replace(Constants(), memory_bw=gpu.memory_bw, flops=gpu.flops)
    read = model.weights_bytes + GAMES * (PROMPT + STAGES / 2) * model.kv_bytes_per_token
    step = model.layers * c.step_overhead_s + max(
        read / (c.memory_bw * c.bw_share), 2 * model.parameters * GAMES / (c.flops * c.mfu)
    )
    prompts = 2 * model.parameters * GAMES * 6 * PROMPT / (c.flops * c.mfu)
    learned = GAMES * (5 * PROMPT + STAGES + PROMPT + TESTS) / 2  # one seat learns at a time
    learning = EPOCHS * 6 * model.parameters * learned / (c.flops * c.mfu)
    return ITERATIONS * (STAGES * step + prompts + learning)


def main() -> None:
    print("| model | " + " | ".join(gpu.name for gpu in GPUS) + " |")
    print("| --- |" + " --- |" * len(GPUS))
    for model in MODELS:
        cells = []
        for gpu in GPUS:
            tokens = gpu.tokens
            while memory(model, tokens) > 0.8 * gpu.memory_gb * GB and tokens > 1024:
                tokens //= 2  # learn.tokens_per_batch, which changes no result
            need = memory(model, tokens) / GB
            fits = need <= 0.8 * gpu.memory_gb  # the rest is for keys and values
            time = f"{seconds(model, gpu) / 60:.0f} min"
            cells.append(f"{need:.0f} GB, {time}" if fits else f"{need:.0f} GB: too little")
        print(f"| {model.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
