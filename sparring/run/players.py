"""Who may sit where: every name under `players` and `opponents.players` means somebody. A name that
nobody has yet is a new policy that learns, so one that is nearly a known name is a slip."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from sparring.core.errors import ConfigError
from sparring.core.nearest import close_to, nearest
from sparring.core.types import BASE, MAIN

_NAME = re.compile(r"[A-Za-z]\w*([.-]\w+)*")


def check_players(
    players: Mapping[str, str], opponents: Iterable[str], known: Collection[str]
) -> None:
    """Refuse a name that cannot be a policy's, or was surely meant to be another; `known` are the
    programs and servers."""
    known = {MAIN, BASE, *known}
    for seat, policy in players.items():
        if policy in known or "@" in policy:
            continue
        if not _NAME.fullmatch(policy):
            raise ConfigError(
                f"players.{seat}: {policy!r} is no name of a policy (letters, digits and "
                "underscores); a checkpoint of a run is RUN@STEP"
            )
        meant = close_to(policy, known)
        if meant:
            raise ConfigError(
                f"players.{seat}: {policy!r} would be a new policy that learns; did you mean "
                f"{meant!r}? If not, choose a name less like it"
            )
    known |= set(players.values())
    for policy in opponents:
        if policy not in known and "@" not in policy:
            raise ConfigError(
                f"opponents.players: nobody is called {policy!r}; {nearest(policy, known)} "
                "Others are RUN@STEP, or MODEL@URL"
            )
