"""Whether those who speak have the weights that learn, by version and checksum: a missed update
moves logprobs by less than the canary's tolerance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparring.core.types import Episode
from sparring.run.rundir import RunError

if TYPE_CHECKING:
    from torch import Tensor


_COLUMNS = 251


class PublishFailed(RunError):
    """An engine does not have the weights that it was given. Games that it plays teach nothing."""

    def __init__(self, policy: str, reason: str) -> None:
        super().__init__(
            f"the engine does not have today's weights of {policy!r}: {reason}. Games that are "
            "played with others cannot be learned from, so the run stops; the checkpoints are "
            "whole. Mend the engine, then --resume."
        )


@contextmanager
def publishing(policy: str) -> Iterator[None]:
    """Whatever fails in it stops the run: a game that is void because of it would be the first of
    many, and a run of void games learns nothing."""
    try:
        yield
    except PublishFailed:
        raise
    except Exception as error:
        raise PublishFailed(policy, str(error) or type(error).__name__) from error


def checksum(state: Mapping[str, Tensor]) -> str:
    """Of weights, on whatever device: sums of their bits, column by column, which as sums of
    integers do not depend on the order of summation."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.blake2b(digest_size=16)
    for key, tensor in sorted(state.items()):
        bits = tensor.detach().contiguous().view(-1).view(integers[tensor.element_size()])
        whole = len(bits) // _COLUMNS * _COLUMNS
        columns = bits[:whole].view(-1, _COLUMNS).sum(0, dtype=torch.int64).tolist()
        rest = bits[whole:].tolist()
        digest.update(repr((key, str(tensor.dtype), tuple(tensor.shape), columns, rest)).encode())
    return digest.hexdigest()


def check_versions(
    episodes: Sequence[Episode], versions: Mapping[str, int], behind: int = 0
) -> None:
    """Refuse games whose turns were spoken by versions other than those that learn, or, where games
    are played ahead, by versions more than so many updates behind."""
    for episode in episodes:
        for turn in episode.turns:
            if episode.void is not None or not turn.trainable:
                continue
            if not 0 <= versions[turn.policy] - turn.version <= behind:
                raise PublishFailed(
                    turn.policy,
                    f"game {episode.id} was played with version {turn.version}, and the learner "
                    f"has version {versions[turn.policy]}",
                )
