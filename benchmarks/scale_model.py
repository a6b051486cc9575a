"""A model of the pipeline on paper: what travels, how much, and what is full first at 8, 64 and
1,024 GPUs. Sizes follow from the models' shapes; speeds are those that were measured
(docs/results.md, docs/performance.md, scale_workers.py) or else the vendor's, marked so."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

GB = 1e9


@dataclass(frozen=True)
class Model:
    """A decoder with gated MLP and grouped keys, in bf16."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def linear(self) -> list[tuple[int, int]]:
        """(in, out) of each matrix of a layer."""
        head = self.hidden // self.heads
        kv = self.kv_heads * head
        return [
            (self.hidden, self.hidden), (self.hidden, kv), (self.hidden, kv),
            (self.hidden, self.hidden), (self.hidden, self.inner), (self.hidden, self.inner),
            (self.inner, self.hidden),
        ]  # fmt: skip

    @property
    def parameters(self) -> int:
        return self.layers * sum(a * b for a, b in self.linear) + 2 * self.vocabulary * self.hidden

    @property
    def weights_bytes(self) -> int:
        return 2 * self.parameters

    def adapter_bytes(self, r: int = 16, width: int = 4) -> int:
        """LoRA on every matrix, as peft keeps it: float32 beside bf16 weights."""
        return self.layers * sum(r * (a + b) for a, b in self.linear) * width

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * 2 * self.layers * self.kv_heads * (self.hidden // self.heads)


MODELS = (
    Model("7B", 28, 3584, 18944, 28, 4, 152064),
    Model("70B", 80, 8192, 28672, 64, 8, 128256),
)


@dataclass(frozen=True)
class Constants:
    # Measured here.
    step_overhead_s: float = 72e-6  # per layer and decode step: (2.7 ms − memory traffic) / 30
    loop_us: float = 32.0  # of a worker per turn: 31,000 turns/s on one core
    # Of the one process that holds the run, per turn: benchmarks/scale_workers.py.
    message_us: float = 41.0  # messages from and to workers, and loading a turn of 328 ids
    load_us: float = 55.0  # loading a turn of 1,024 ids and 512 logprobs; others in proportion
    credit_us: float = 110.0  # credit and samples, likewise
    record_us: float = 310.0  # JSON and gzip, likewise
    lesson_bytes: float = 23.0  # per token, to each process that learns
    programs_per_core_s: float = 275.0  # judge: 550 programs/s on two cores
    ids_bytes: float = 3.0  # per id in a pickled turn or request
    logprob_bytes: float = 9.0
    turn_bytes: float = 400.0  # of a pickled turn without ids and text
    # The vendor's, of an H200; not measured.
    memory_bw: float = 4.8e12
    flops: float = 990e12
    memory_gb: float = 141.0
    nvlink: float = 450e9  # bytes/s, one way
    network: float = 50e9  # bytes/s of a GPU to another machine: 400 Gbit/s
    # Assumed, and to be replaced by a measurement where there is one.
    bw_share: float = 0.6  # of the memory's bandwidth that a decode step attains
    mfu: float = 0.4  # of the arithmetic that learning attains


@dataclass(frozen=True)
class Load:
    """A game of reasoning: what one turn and one episode are."""

    prompt: int = 512
    reply: int = 512
    turns: int = 4
    judged: float = 1.0  # programs per episode
    batch: int = 256  # replies at once on a replica
    staleness_s: float = 120.0  # an iteration, start to start

    @property
    def turn_ids(self) -> int:
        return self.prompt + self.reply


@dataclass(frozen=True)
class Plan:
    """So many GPUs, divided between speaking and learning."""

    model: str
    gpus: int
    gpus_per_replica: int
    replicas: int
    learners: int
    turns_per_s: float
    episodes_per_s: float
    bytes_per_turn: float
    bytes_per_episode: float
    bytes_per_publish: float
    publish_s: float
    published_full_s: float
    if_at_once: float  # turns/s, if learning and playing overlapped
    full: dict[str, float]  # what is asked of each part, as a share of what it can do
    first: str


def gpus_per_replica(model: Model, load: Load, c: Constants) -> int:
    """The fewest that hold the weights and the batch's keys and values in nine tenths of memory."""
    need = model.weights_bytes + load.batch * (load.prompt + load.reply) * model.kv_bytes_per_token
    for n in (1, 2, 4, 8):
        if need <= 0.9 * n * c.memory_gb * GB:
            return n
    return 8


def replica_turns_per_s(model: Model, load: Load, c: Constants, n: int) -> float:
    """Reading the prompts, then a step per token; both over n GPUs."""
    prefill = 2 * model.parameters * load.prompt * load.batch / (n * c.flops * c.mfu)
    places = load.prompt + load.reply / 2
    read = model.weights_bytes + load.batch * places * model.kv_bytes_per_token
    compute = 2 * model.parameters * load.batch / (n * c.flops * c.mfu)
    step = model.layers * c.step_overhead_s + max(read / (n * c.memory_bw * c.bw_share), compute)
    return load.batch / (prefill + load.reply * step)


def learner_turns_per_s(model: Model, load: Load, c: Constants) -> float:
    """Of one GPU: forward, backward and the recomputation of a checkpoint, without the gradient of
    frozen weights: 2 + 2 + 2 operations per weight and token with LoRA."""
    return c.flops * c.mfu / (6 * model.parameters * (load.prompt + load.reply))


def plan(model: Model, gpus: int, load: Load, c: Constants) -> Plan:
    per = gpus_per_replica(model, load, c)
    speak, learn = (
        replica_turns_per_s(model, load, c, per) / per,
        learner_turns_per_s(model, load, c),
    )
    # The loop plays, then learns. This division makes the sum of both times least.
    learners = max(1, min(gpus - per, round(gpus / (1 + (learn / speak) ** 0.5))))
    replicas = max(1, (gpus - learners) // per)
    playing, learning = replicas * per * speak, learners * learn
    turns = 1 / (1 / playing + 1 / learning)
    said = load.turn_ids
    per_turn = c.turn_bytes + said * c.ids_bytes + load.reply * c.logprob_bytes + 4 * said
    adapter = model.adapter_bytes()
    nodes = -(-gpus // 8)
    episodes = turns / load.turns
    size = load.turn_ids / 1024
    full = {
        "games on a core beside each replica": playing / replicas * c.loop_us / 1e6,
        "driver, messages": playing * c.message_us / 1e6,
        "driver, all it does with a turn": turns
        * (c.message_us + size * (c.load_us + c.credit_us + c.record_us))
        / 1e6,
        "its network, episodes in": playing * per_turn / c.network,
        "its network, lessons out": turns
        * load.turn_ids
        * c.lesson_bytes
        * _hops(nodes)
        / c.network,
        "publishing an adapter": adapter * _hops(nodes) / c.network / load.staleness_s,
        "publishing all weights": model.weights_bytes * _hops(nodes) / c.network / load.staleness_s,
        "judges on 16 cores a node": playing
        / load.turns
        * load.judged
        / (nodes * 16 * c.programs_per_core_s),
        "gradients of an adapter": 2 * adapter / c.network / load.staleness_s,
    }
    limits = {k: v for k, v in full.items() if k != "publishing all weights"}
    return Plan(
        model.name, gpus, per, replicas, learners, turns, episodes, per_turn, per_turn * load.turns,
        adapter, adapter * _hops(nodes) / c.network, model.weights_bytes * _hops(nodes) / c.network,
        _at_once(gpus, per, speak, learn), full, max(limits, key=limits.__getitem__),
    )  # fmt: skip


def _at_once(gpus: int, per: int, speak: float, learn: float) -> float:
    learners = max(1, min(gpus - per, round(gpus * speak / (speak + learn))))
    return min(max(1, (gpus - learners) // per) * per * speak, learners * learn)


def _hops(nodes: int) -> int:
    """Ray's store hands an object from node to node: as many rounds as doublings."""
    return max(1, (nodes - 1).bit_length()) if nodes > 1 else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--message-us", type=float, default=Constants.message_us)
    parser.add_argument("--prompt", type=int, default=Load.prompt)
    parser.add_argument("--reply", type=int, default=Load.reply)
    parser.add_argument("--turns", type=int, default=Load.turns)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    constants = Constants(message_us=asked.message_us)
    load = Load(prompt=asked.prompt, reply=asked.reply, turns=asked.turns)
    plans = [plan(m, g, load, constants) for m in MODELS for g in (8, 64, 1024)]
    if asked.json:
        print(json.dumps([asdict(p) for p in plans]))
        return
    for p in plans:
        print(
            f"{p.model} on {p.gpus} GPUs: {p.replicas} replicas of {p.gpus_per_replica}, "
            f"{p.learners} that learn; {p.turns_per_s:,.0f} turns/s, {p.episodes_per_s:,.1f} "
            f"episodes/s; {p.if_at_once:,.0f} turns/s if both went on at once"
        )
        print(
            f"  {p.bytes_per_turn:,.0f} bytes a turn, {p.bytes_per_episode:,.0f} an episode, "
            f"{p.bytes_per_publish / 1e6:,.0f} MB a publish ({p.publish_s:.3f} s; all weights "
            f"{p.published_full_s:.1f} s)"
        )
        for part, share in sorted(p.full.items(), key=lambda item: -item[1]):
            print(f"    {share:8.1%}  {part}")


if __name__ == "__main__":
    main()
