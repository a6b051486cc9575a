"""What this machine can check of equivalence, for `sparring doctor`."""

from __future__ import annotations

import asyncio

from sparring.cli.doctor import Finding, optional

_ADD = "pip install 'sparring[equivalence]'"


def check() -> list[Finding]:
    python = [
        optional("hypothesis", "checks of equivalence", _ADD),
        optional("crosshair", "symbolic checks of equivalence", _ADD),
    ]
    return [*_haskell(), *python]


def _haskell() -> list[Finding]:
    from sparring.pipelines.equivalence.judge.haskell_jail import probe

    ok, explanation, install = probe()
    wrong = asyncio.run(_proofs()) if ok else "Liquid Haskell needs GHC"
    proofs = wrong or "x + x == 2 * x is proved and x + x == 3 * x refused, as games do it"
    return [
        Finding("haskell", ok, explanation, install if not ok else ""),
        Finding("liquid haskell", not wrong, proofs, "see docs/haskell.md" if wrong else ""),
    ]


async def _proofs() -> str:
    from sparring.pipelines.equivalence.judge.haskell import HaskellChecker

    async with HaskellChecker() as checker:
        return await checker.self_check()
