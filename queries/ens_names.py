"""ENS names in place of accounts' addresses."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chains.chains_file import Chain, Chains
from chains.nodes.node_errors import NodeUnavailable
from config.error_answers import Refused

logger = logging.getLogger(__name__)

# Seconds until a client should try again if names can't be resolved.
_RETRY_SECONDS = 5


@dataclass(frozen=True)
class Account:
    """An account in a request. An account that is named in two ways, such as by name and address, counts as two."""

    address: str  # with its EIP-55 checksum if the request has it, or has a name
    name: str = ""  # normalized ENS name (ENSIP-15); empty: the request has the address


@dataclass(frozen=True)
class NoAccount:
    """The reason why a name has no account. The text follows "the name …" in a sentence."""

    because: str
    is_supported: bool = True


Accounts = Mapping[str, Account | NoAccount]
"""The account of each name, as the request writes the name."""


class NamesUnavailable(Refused):
    """Names can't be resolved now. Nothing was stored."""


def is_name(key: str) -> bool:
    return "." in key


def resolve_names(names: Sequence[str], chains: Chains) -> Accounts:
    """Return the accounts of these ENS names. Return nothing if names aren't supported.

    Each name is resolved once per batch. The web server's thread waits for that. Raises `NamesUnavailable`.
    """
    if chains.ens is None or not names:
        return {}
    chain = chains.chain(chains.ens.chain_id)
    try:
        return _resolved(names, chain)
    except NodeUnavailable as error:
        logger.warning("names are not resolved: %s", error.for_operators)
        raise NamesUnavailable(
            "names_unavailable",
            f"The names can't be resolved now: the nodes of chain {chain.id} don't answer. Nothing was stored; send it "
            "again in a moment.",
            retry_after=_RETRY_SECONDS,
        ) from None


def _resolved(names: Sequence[str], chain: Chain) -> Accounts:
    # The web server imports it before its first request. Workers and commands don't need it.
    from chains import ens  # noqa: PLC0415

    accounts: dict[str, Account | NoAccount] = {}
    normal: dict[str, str] = {}
    for name in names:
        try:
            normal[name] = ens.normalized(name)
        except ens.InvalidName as invalid:
            accounts[name] = NoAccount(str(invalid))
    wanted = list(dict.fromkeys(normal.values()))
    answers = dict(zip(wanted, ens.resolve(chain, wanted), strict=True))
    for name, normalized in normal.items():
        answer = answers[normalized]
        if isinstance(answer, str):
            accounts[name] = Account(answer, normalized)
        else:
            accounts[name] = NoAccount(str(answer), is_supported=answer.is_supported)
    return accounts
