"""What `begin.NAME` may name instead of weights that exist: something to imitate first."""

from __future__ import annotations

from collections.abc import Mapping

from sparring.core.errors import ConfigError

KINDS = ("scripted", "perfect", "demonstrations")


def imitated(policy: str) -> tuple[str, str] | None:
    """("scripted", "2000") of `scripted:2000`; None where `policy` names weights that exist."""
    kind, colon, source = policy.partition(":")
    return (kind, source) if colon and kind in KINDS else None


def check_imitated(begin: Mapping[str, str]) -> None:
    for name, policy in begin.items():
        kind, source = imitated(policy) or ("", "")
        if kind in ("scripted", "perfect") and not (source.isdigit() and int(source) > 0):
            raise ConfigError(
                f"begin.{name}={policy}: {kind}:GAMES wants a number of games, as in {kind}:2000"
            )
