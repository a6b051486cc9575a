"""Many engines as one, placed on many machines by Ray. A replica is any other engine, in a process
of its own; weights go to all of them once per change, through Ray's object store; a request goes
where least is waiting, or where its beginning was read before; a replica that dies is replaced, and
what it was asked is asked again elsewhere. A game sees one turn for one request, whatever died."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Request, Sampling, Turn, View
from sparring.engines.engine import OwnEngine
from sparring.engines.published import PublishFailed, checksum
from sparring.engines.ray_cluster import connect, death, failures, last_line
from sparring.run.cluster import RayConfig
from sparring.run.rundir import RunError

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine

log = logging.getLogger(__name__)
Make = Callable[[], Any]  # called in the replica's process; gives its engine
Key = tuple[Any, ...]

_SLACK = 4  # requests that a replica may be ahead of the least busy one and still keep its own
_REMEMBERED = 65_536  # beginnings whose replica is known
_OPENING = 32  # ids, or _OPENING * 8 characters, that tell one beginning from another
_TRIES = 8  # replicas that may die under one request before it is the request's fault


class PoolLost(RunError):
    """No replica is left, and none could be had."""


class Replica:
    """What runs on a node: an engine, and the weights it was given."""

    def __init__(self, make: Make) -> None:
        self.engine = make()

    def ready(self) -> tuple[str, str]:
        """Which package speaks here, and where."""
        return metadata.version("sparring"), socket.gethostname()

    async def act(self, request: Request) -> Turn:
        turn: Turn = await self.engine.act(request)
        return turn

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        chances: list[list[float]] = self.engine.probabilities(policy, asked, sampling)
        return chances

    async def receive(self, versions: dict[str, int], weights: dict[str, Any]) -> dict[str, str]:
        """New weights for some policies, and the names of all that there are. Gives back checksums
        of what has arrived, once it is in place."""
        policies = self.engine.policies
        for name in [n for n in policies.names() if n != BASE and n not in versions]:
            policies.remove(name)
        sums = {}
        for name, packed in weights.items():
            if name not in policies.names():
                policies.add(name)
            state = deserialize(packed)
            policies.load(name, state)
            mine = policies.state(name)
            if checksum({k: t.to(mine[k].dtype) for k, t in state.items()}) != checksum(mine):
                raise RuntimeError("what it holds is not what it was given")
            sums[name] = checksum(state)
        for name, version in versions.items():
            policies.set_version(name, version)
        self.engine.publish()
        return sums


def serialize(state: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...], Any]]:
    """Tensors as arrays of bytes, which Ray shares between processes without a copy."""
    import torch

    arrays = {}
    for key, tensor in state.items():
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        arrays[key] = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), flat)
    return arrays


def deserialize(packed: dict[str, tuple[str, tuple[int, ...], Any]]) -> dict[str, Any]:
    import torch

    return {
        # A copy: what lies in the object store may not be written to, and torch wants to.
        key: torch.from_numpy(flat.copy()).view(getattr(torch, dtype)).view(shape)
        for key, (dtype, shape, flat) in packed.items()
    }


def choose(loads: Sequence[int | None], home: int | None, slack: int = _SLACK) -> int | None:
    """The replica for a request: its home, if that is not too far ahead of the least busy one; else
    the least busy. None stands for a replica that is gone."""
    there = [(load, i) for i, load in enumerate(loads) if load is not None]
    if not there:
        return None
    least, index = min(there)
    if home is not None and loads[home] is not None and loads[home] <= least + slack:  # type: ignore[operator]
        return home
    return index


def beginning(request: Request) -> Key:
    """What requests share that a replica has read already: the opening of a conversation."""
    if request.previous is not None:
        return (request.policy, *request.previous.prompt_ids[:_OPENING])
    return (request.policy, request.messages[0]["content"][: _OPENING * 8])


@dataclass
class _Slot:
    actor: Any
    load: int = 0
    alive: bool = True


class RayPool(OwnEngine):
    """Stands where an engine of the run's own stands; `own` keeps the policies that learn."""

    def __init__(
        self,
        own: OwnEngine,
        make: Make,
        config: RayConfig,
        gpus: float = 0.0,
        *,
        whole: bool = True,  # whether `own` has weights to speak with
    ) -> None:
        self.whole = whole
        self.own, self.chat, self.policies, self.base = own, own.chat, own.policies, own.base
        self.config, self._make, self._gpus = config, make, gpus
        self.replaced = self.replayed = self.published_bytes = self.publishes = 0
        self._homes: OrderedDict[Key, int] = OrderedDict()
        self._given: dict[str, int] = {}  # versions that all replicas have
        self._next: dict[str, int] = {}  # versions that they are being given
        self._stored: dict[str, Any] = {}  # policy -> its weights in the object store
        self._sums: dict[str, str] = {}  # policy -> their checksum
        self._change_of_weights = 0  # counts them: one may come while a replica is replaced
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Lock()
        self._change = asyncio.Event()
        self._replacing: set[asyncio.Task[None]] = set()
        self._started_ray = connect(config, gpus)
        self._slots = [_Slot(self._start()) for _ in range(config.replicas)]
        self._meet()

    def _start(self) -> Any:
        import ray

        options = {"num_cpus": self.config.cpus, "num_gpus": self._gpus}
        actor = ray.remote(Replica).options(scheduling_strategy="SPREAD", **options)
        return actor.remote(self._make)

    def _meet(self, tries: int = 3) -> None:
        """Wait for replicas to come up, and refuse those of another version."""
        import ray

        here = metadata.version("sparring")
        asked = [slot.actor.ready.remote() for slot in self._slots]
        try:
            answers = ray.get(asked, timeout=self.config.patience_s)
        except ray.exceptions.GetTimeoutError:
            have = ray.cluster_resources()
            self.kill()
            raise ConfigError(
                f"{len(asked)} replicas did not start within {self.config.patience_s:.0f} s: each "
                f"needs {self.config.cpus:g} CPUs and {self._gpus:g} GPUs, and the cluster has "
                f"{have.get('CPU', 0):g} and {have.get('GPU', 0):g}. Ask for less, or add nodes."
            ) from None
        except ray.exceptions.RayError as error:
            if "its node has died" in str(error) and tries > 1:
                # It was sent to a node whose death Ray notices only now, and will not choose again.
                for slot in self._slots:
                    ray.kill(slot.actor)
                    slot.actor = self._start()
                self._meet(tries - 1)
                return
            self.kill()
            raise ConfigError(f"a replica could not start: {last_line(error)}") from error
        for version, host in answers:
            if version != here:
                self.kill()
                raise ConfigError(
                    f"{host} has sparring {version} and this is {here}: install the same on every "
                    "node of the cluster"
                )

    async def act(self, request: Request) -> Turn:
        """One turn. Replicas may die under it; it is then played again, with the same seed."""
        self._enter_loop()
        await self._share()
        key = beginning(request)
        # Of what a game shows, an engine needs the legal actions at most; programs, all of it.
        masked = request.view if request.sampling.mask_actions else None
        light = replace(request, view=masked and View(None, masked.actions))
        for _ in range(_TRIES):
            index = await self._free_slot(key)
            slot = self._slots[index]
            slot.load += 1
            try:
                turn: Turn = await slot.actor.act.remote(light)
            except death() as error:
                self.replayed += 1
                self._lost(index, slot, error)
                continue
            except Exception as error:
                raise getattr(error, "cause", None) or error from None
            finally:
                slot.load -= 1
                self._change.set()
            if turn.version != self._given.get(request.policy, turn.version):
                wanted = self._given[request.policy]
                reason = f"a replica spoke with version {turn.version} of {wanted}"
                raise PublishFailed(request.policy, reason)
            self._remember(key, index)
            self._remember((request.policy, *turn.prompt_ids[:_OPENING]), index)
            return turn
        raise PoolLost(f"{_TRIES} replicas died under one request of {request.policy!r}")

    def _enter_loop(self) -> None:
        """Locks belong to one event loop, and a run may have several, one after the other."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._gate, self._change = loop, asyncio.Lock(), asyncio.Event()
            self._replacing.clear()

    async def _free_slot(self, key: Key) -> int:
        while True:
            loads = [slot.load if slot.alive else None for slot in self._slots]
            index = choose(loads, self._homes.get(key))
            if index is not None:
                return index
            if not self._replacing:
                raise PoolLost(
                    "every replica died and none could be started again; the checkpoints are "
                    "whole. Look at the cluster with `ray status`, then --resume."
                )
            self._change.clear()
            await self._change.wait()

    def _remember(self, key: Key, index: int) -> None:
        self._homes[key] = index
        self._homes.move_to_end(key)
        if len(self._homes) > _REMEMBERED:
            self._homes.popitem(last=False)

    def _lost(self, index: int, slot: _Slot, error: Exception) -> None:
        """Begin to replace a replica, once, however many requests it took with it."""
        if self._slots[index] is not slot or not slot.alive:
            return
        slot.alive = False
        log.warning("replica %d is gone (%s); replacing it", index, last_line(error))
        task = asyncio.get_running_loop().create_task(self._replace(index))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, index: int) -> None:
        actor = self._start()
        try:
            async with asyncio.timeout(self.config.patience_s):
                await actor.ready.remote()
                have = -1
                while have != self._change_of_weights:  # meanwhile others may have been published
                    have = self._change_of_weights
                    for name in list(self._stored):
                        await self._hand_over(actor, name)
        except failures() as error:
            log.warning("replica %d could not be replaced: %s", index, last_line(error))
        else:
            self._slots[index] = _Slot(actor)
            self.replaced += 1
        finally:
            self._change.set()

    async def _share(self) -> None:
        """Give the replicas what has changed since they were last given anything. Nothing is being
        played when weights change, so nothing can be played with half of them."""
        if self._stale():
            async with self._gate:
                if self._stale():
                    await self._publish({n: self.policies.version(n) for n in self._served()})

    def _stale(self) -> bool:
        return {n: self.policies.version(n) for n in self._served()} != self._given

    async def _publish(self, wanted: dict[str, int]) -> None:
        import ray

        changed = [n for n, v in wanted.items() if self._given.get(n) != v]
        kept = {n: ref for n, ref in self._stored.items() if n in wanted}
        for name in changed:
            state = self.policies.state(name)
            self._sums[name], packed = checksum(state), serialize(state)
            kept[name] = ray.put({name: packed})  # of which each node fetches one copy
            self.published_bytes += sum(flat.nbytes for _, _, flat in packed.values())
        self._stored, self._next = kept, wanted
        self._change_of_weights += 1
        self.publishes += 1
        slots = [(i, slot) for i, slot in enumerate(self._slots) if slot.alive]
        await asyncio.gather(*(self._give(i, slot, changed) for i, slot in slots))
        self._given = wanted

    async def _give(self, index: int, slot: _Slot, names: list[str]) -> None:
        try:
            for name in names:
                await self._hand_over(slot.actor, name)
        except death() as error:
            self._lost(index, slot, error)

    async def _hand_over(self, actor: Any, name: str) -> None:
        """Give a replica the weights of a policy, and compare what it has then."""
        if name not in self._stored:  # gone while a replica was replaced
            return
        wanted = self._sums[name]
        try:
            sums = await actor.receive.remote(self._next, self._stored[name])
        except death():
            raise
        except Exception as error:
            raise PublishFailed(name, f"a replica did not take them: {last_line(error)}") from error
        if sums[name] != wanted:
            raise PublishFailed(name, "what arrived at a replica is not what was sent")

    def _served(self) -> list[str]:
        """Everyone who may be asked to speak: references only score."""
        from sparring.models.policies import REFERENCE

        names = self.policies.names()
        return [n for n in names if n != BASE and not n.startswith(f"{REFERENCE}_")]

    def publish(self) -> None:
        """Weights have changed under the same versions, as when a checkpoint was loaded."""
        self._given = {}

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        if self.whole:
            return self.own.probabilities(policy, asked, sampling)
        import ray

        if self._stale():
            raise RunError("nothing has been played with these weights yet, so no replica has them")
        actor = next(slot.actor for slot in self._slots if slot.alive)
        chances: list[list[float]] = ray.get(
            actor.probabilities.remote(policy, list(asked), sampling)
        )
        return chances

    def metrics(self) -> dict[str, float]:
        """What happened since this was last asked."""
        stats = {
            "pool/replicas": float(sum(slot.alive for slot in self._slots)),
            "pool/replaced": float(self.replaced),
            "pool/replayed": float(self.replayed),
            "pool/publishes": float(self.publishes),
            "pool/published_bytes": float(self.published_bytes),
        }
        self.replaced = self.replayed = self.publishes = self.published_bytes = 0
        return stats

    def kill(self) -> None:
        import ray

        for slot in getattr(self, "_slots", []):
            ray.kill(slot.actor)
        if self._started_ray:
            ray.shutdown()

    async def close(self) -> None:
        for task in list(self._replacing):
            task.cancel()
        self.kill()
