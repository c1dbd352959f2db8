"""ENS names as keys of `accounts`: each is resolved once for a batch, on the chain that the chains' file has for it.

That takes nodes, and holds a thread of the web server meanwhile.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chains.chains_file import Chain, Chains
from chains.rpc import NodeUnavailable
from config.error_answers import Refused

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 5


@dataclass(frozen=True)
class Account:
    """An account as a request names it. Under its name and under its address it is two, and so under two names."""

    address: str  # EIP-55
    name: str = ""  # normalised (ENSIP-15); empty: it was named by its address


@dataclass(frozen=True)
class NoAccount:
    """The reason why a name stands for no account. It follows "the name …" in a sentence."""

    because: str
    is_supported: bool = True


Accounts = Mapping[str, Account | NoAccount]
"""By the name, as the request has it."""


class Unavailable(Refused):
    """Names can't be resolved now. Nothing of the request is stored."""


def is_name(key: str) -> bool:
    return "." in key


def named(document: Any) -> list[str]:
    """Return the keys of `accounts` in a body that are names, each once, however malformed the body is."""
    data = document.get("data") if isinstance(document, dict) else None
    blocks = [blocks for blocks in data.values() if isinstance(blocks, dict)] if isinstance(data, dict) else []
    accounts = [block.get("accounts") for of_one in blocks for block in of_one.values() if isinstance(block, dict)]
    return list(dict.fromkeys(key for of_one in accounts if isinstance(of_one, dict) for key in of_one if is_name(key)))


def resolve(names: Sequence[str], chains: Chains) -> Accounts:
    """Return the accounts that these names stand for; empty where names are not supported. Raises `Unavailable`."""
    if chains.ens is None or not names:
        return {}
    chain = chains.chain(chains.ens.chain_id)
    try:
        return _resolve(names, chain)
    except NodeUnavailable as error:
        logger.warning("names are not resolved: %s", error.for_operators)
        raise Unavailable(
            "names_unavailable",
            f"The names can't be resolved now: the nodes of chain {chain.id} don't answer. Nothing was stored; send it "
            "again in a moment.",
            retry_after=_RETRY_SECONDS,
        ) from None


def _resolve(names: Sequence[str], chain: Chain) -> Accounts:
    # The web server imports it before its first request; no worker and no command waits for it.
    from chains import ens  # noqa: PLC0415

    found: dict[str, Account | NoAccount] = {}
    normal: dict[str, str] = {}
    for name in names:
        try:
            normal[name] = ens.normalized(name)
        except ens.InvalidName as invalid:
            found[name] = NoAccount(str(invalid))
    wanted = list(dict.fromkeys(normal.values()))
    answers = dict(zip(wanted, ens.resolve(chain, wanted), strict=True))
    for name, normalized in normal.items():
        answer = answers[normalized]
        if isinstance(answer, str):
            found[name] = Account(answer, normalized)
        else:
            found[name] = NoAccount(str(answer), is_supported=answer.is_supported)
    return found
