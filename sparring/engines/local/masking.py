"""Action masking: only the tokens of legal actions can be drawn, and what is left is renormalised.

Shapes: B requests, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

Node = dict[int, "Node"]


class Trie:
    """The token sequences of the legal actions. The end token is part of it only where one action
    is a prefix of another; elsewhere a reply ends with the action's last token."""

    def __init__(self, actions: Iterable[Sequence[int]], end: int) -> None:
        self.root: Node = {}
        self.depth = 0  # tokens of the longest reply
        closed = []
        for tokens in actions:
            node = self.root
            for token in tokens:
                node = node.setdefault(token, {})
            closed.append((node, len(tokens)))
        for node, length in closed:
            if node:
                node[end] = {}
            self.depth = max(self.depth, length + bool(node))

    def allowed(self, prefix: Sequence[int] = ()) -> list[int]:
        """The tokens that may come next; none where an action is complete."""
        node = self.root
        for token in prefix:
            node = node[token]
        return list(node)


def mask_logits(logits_BV: Tensor, allowed: Sequence[Sequence[int]]) -> Tensor:
    """Logits with everything but each row's allowed tokens at −inf; a row that names none keeps
    them all."""
    rows = [i for i, tokens in enumerate(allowed) for _ in tokens]
    if not rows:
        return logits_BV
    columns = [token for tokens in allowed for token in tokens]
    kept_BV = torch.tensor([[not tokens] for tokens in allowed], device=logits_BV.device)
    kept_BV = kept_BV.repeat(1, logits_BV.shape[-1])
    kept_BV[rows, columns] = True
    return logits_BV.masked_fill(~kept_BV, -torch.inf)
