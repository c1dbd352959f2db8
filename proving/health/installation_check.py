"""Check an installation for `manage.py check_chains`: every node and attester, ENS, signers and registries."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from django.db import Error as DatabaseError

from chains.chains_file import Chain, Chains, Connection, Signer, SignerError, chain_of_node
from chains.probe import Abilities, probe
from chains.request_batches import Endpoint
from chains.rpc import ChainError, NodeUnavailable, RpcClient
from config.configured_chains import get_chains
from proving import sources
from proving.connections import open_connection
from proving.health import attester_checks, beacon_checks, chain_checks, findings
from proving.health.findings import Problem
from proving.models import FactsRegistry
from proving.registry import deployments, funding
from proving.sources import NotYet, arbitrum, op_stack_games
from proving.transactions import signers

# How long to wait for the id of a node's chain.
_SECONDS = 10
_COLUMNS = ("node", "head", "age", "finalized", "pending", "EIP-2935", "proofs")


def check(say: Callable[[str], object]) -> list[Problem]:
    """Say each thing in a line; return what is wrong. Raises `ChainsError`."""
    chains = get_chains()
    problems: list[Problem] = []
    recorded = list(_Registry.recorded(chains))
    for chain in chains.chains:
        say(chain.label)
        problems += _check_chain(chain, chains, say)
        for registry in recorded:
            if registry.row.destination_chain_id == chain.id:
                say(f"  {registry.said}")
        for connection in chains.connections:
            if connection.destination_id == chain.id and connection.attesters:
                asked = attester_checks.examine(connection)
                for line in asked.said:
                    say(f"  {line}")
                problems += asked.problems
            if connection.destination_id == chain.id and (connection.outbox or connection.anchor_state_registry):
                problems += _check_confirmed(connection, chains, say)
    return problems + _kept()


def check_node(url: str, say: Callable[[str], object]) -> list[Problem]:
    """Say what a node can do that chains.toml needn't name; return what is wrong. Raises `ValueError`: not a URL."""
    chain = chain_of_node(url, os.environ)
    (url,), (host,) = chain.rpc_urls, chain.hosts
    try:
        chain_id = Endpoint(chain.id, url, host, timeout_seconds=_SECONDS, clock=time.monotonic).chain_id()
    except NodeUnavailable as error:
        return [Problem("chain_unavailable", f"{error}.")]
    say(f"A node of chain {chain_id}")
    if _check_nodes(chain.model_copy(update={"id": chain_id}), say, must_prove=True):
        return []
    return [Problem("no_proofs", "The node can't be that of a source chain: it serves no proofs (eth_getProof).")]


def _check_chain(chain: Chain, chains: Chains, say: Callable[[str], object]) -> list[Problem]:
    """Tell of a chain's nodes and signers; returns what is wrong with them."""
    must_prove = chain.id in {connection.source_id for connection in chains.connections}
    can_be_used = _check_nodes(chain, say, must_prove=must_prove)
    beacon_problems = beacon_checks.check(chain, say)
    rpc = RpcClient(chain)
    seen = chain_checks.examine(chain, rpc)
    if chain in chains.destinations():
        lines = [line for signer in chain.all_signers for line in _said_of(signer, chain, chains, rpc)]
        for line in lines or [signers.why_none(chain)]:
            say(f"  {line}")
    problems = [*seen.problems, *_check_names(chain, chains, say)] if seen.head else list(seen.problems)
    problems += beacon_problems
    if seen.head and not can_be_used:
        return [*problems, Problem("no_proofs", f"No node of {chain.label} can be used: none serves proofs.")]
    return problems


def _check_names(chain: Chain, chains: Chains, say: Callable[[str], object]) -> list[Problem]:
    """Ask for an ENS name, as a submission does, if names are resolved on this chain."""
    if chains.ens is None or chains.ens.chain_id != chain.id:
        return []
    # It takes a while to import, and is used here alone.
    from chains import ens  # noqa: PLC0415

    try:
        ens.resolve(chain, ["eth"])
    except NodeUnavailable as error:
        return [Problem("names_unavailable", error.for_operators)]
    say("  ENS names can be asked for.")
    return []


def _check_confirmed(connection: Connection, chains: Chains, say: Callable[[str], object]) -> list[Problem]:
    """Tell the newest block that the rollup of a connection has confirmed, once the registry is deployed."""
    try:
        opened = open_connection(connection.destination_id, connection.source_id)
        rollup = op_stack_games if connection.anchor_state_registry else arbitrum
        code = ", ".join(f"{name}: {at}" for name, at in rollup.implementations(opened).items())
        say(f"  Code that decides about {chains.chain(connection.source_id).label}: {code}.")
        newest = sources.of(connection).newest(opened)
    except (DatabaseError, deployments.Unusable):
        return []
    except ChainError as error:
        return [Problem("nothing_confirmed", error.for_operators)]
    if isinstance(newest, NotYet):
        return [Problem("nothing_confirmed", newest.sentence)]
    say(f"  The newest confirmed block of {chains.chain(connection.source_id).label} is {newest}.")
    return []


def _check_nodes(chain: Chain, say: Callable[[str], object], *, must_prove: bool) -> bool:
    """Tell of each node, in a line; returns whether one of them can be used."""
    found = [(host, _abilities(chain, url)) for host, url in zip(chain.hosts, chain.rpc_urls, strict=True)]
    rows = [
        (host, *_cells(abilities)) if isinstance(abilities, Abilities) else (host, abilities)
        for host, abilities in found
    ]
    for line in _aligned([_COLUMNS, *rows]):
        say(f"  {line}")
    return any(
        isinstance(abilities, Abilities) and not (must_prove and abilities.oldest_provable is None)
        for _, abilities in found
    )


@dataclass(frozen=True)
class _Registry:
    row: FactsRegistry
    said: str  # sentences

    @classmethod
    def recorded(cls, chains: Chains) -> Iterator[Self]:
        """Yield the registries of configured connections, replaced ones too. Their code is looked at now."""
        try:
            rows = list(FactsRegistry.objects.exclude(deployed_at=None).order_by("source_chain_id", "pk"))
        except DatabaseError:
            # Nodes are checked before anything is set up.
            return
        for row in rows:
            if chains.connection(row.source_chain_id, row.destination_chain_id):
                yield cls._checked(row)

    @classmethod
    def _checked(cls, row: FactsRegistry) -> Self:
        if row.replaced_at:
            return cls(row, f"Replaced on {row.replaced_at:%Y-%m-%d}, code {row.code_hash}: {row.replaced_because}")
        try:
            deployments.check(row)
        except ChainError as error:
            return cls(row, f"The code of the facts registry {row} can't be read: {error.for_operators}")
        if row.refused:
            return cls(row, row.refused_with_remedy)
        said = f"The facts registry {row} has the code of this version, {row.code_hash}."
        if row.beacon_history:
            return cls(row, f"{said} So has its beacon history, {row.beacon_history}.")
        if why_not := deployments.why_no_jump(row):
            command = f"manage.py deploy_registry {row.destination_chain_id} {row.source_chain_id} --replace"
            return cls(row, f"{said} {why_not} The operator may run: {command}")
        return cls(row, said)


def _abilities(chain: Chain, url: str) -> Abilities | str:
    """Return what the node can do, or what is wrong with it."""
    alone = chain.model_copy(update={"rpc_urls": (url,)})
    rpc = RpcClient(alone)
    try:
        return probe(rpc)
    except NodeUnavailable as error:
        # The host stands in the line already.
        return " ".join(error.reasons).removeprefix(f"{alone.hosts[0]} ") or str(error)
    except ChainError as error:
        return error.for_operators


def _cells(abilities: Abilities) -> tuple[str, ...]:
    head, finalized, oldest = abilities.head, abilities.finalized, abilities.oldest_provable
    if oldest is None:
        proofs = "none"
    elif oldest <= 1:
        proofs = f"back to block {oldest}"
    else:
        proofs = f"at least {head.number - oldest:,} blocks back"
    return (
        f"{head.number:,}",
        f"{time.time() - head.timestamp:,.0f} s",
        "none" if finalized is None else f"{finalized:,}",
        "yes" if abilities.knows_pending else "no",
        "yes" if abilities.keeps_hashes else "no",
        proofs,
    )


def _said_of(signer: Signer, chain: Chain, chains: Chains, rpc: RpcClient) -> Iterator[str]:
    """Yield the signer's address with what it holds, and what it lacks to begin; or why that can't be told."""
    try:
        address = signer.account().address
        balance = rpc.balance(address)
        currency, minimum = chain.native_currency, chain.minimum_signer_balance
        yield f"The signer {address} holds {balance / 10**18:.6f} {currency}; it stops below {minimum} {currency}."
        missing = _without_registry(chain, chains)
        if missing and balance < (needed := funding.needed(chain, missing, rpc)).least:
            registries = "1 registry" if len(missing) == 1 else f"{len(missing)} registries"
            yield (
                f"To begin on {chain.label}, send {chain.amount(needed.to_send(balance))} to {address}: deploying "
                f"{registries} takes at most "
                f"{chain.amount(needed.deploying)} at present, and each balance that is proven about "
                f"{chain.amount(needed.each_balance)}."
            )
    except SignerError as error:
        yield str(error)
    except ChainError as error:
        yield error.for_operators


def _without_registry(chain: Chain, chains: Chains) -> list[Connection]:
    """Return the connections to a destination that have no registry yet."""
    connected = [one for one in chains.connections if one.destination_id == chain.id]
    try:
        in_use = FactsRegistry.in_use.exclude(deployed_at=None).filter(destination_chain_id=chain.id)
        deployed = set(in_use.values_list("source_chain_id", flat=True))
    except DatabaseError:
        return connected
    return [one for one in connected if one.source_id not in deployed]


def _kept() -> list[Problem]:
    """Return what else keeps the service from working, as `/healthz` tells it.

    What workers saw of chains is left out: it was seen anew.
    """
    try:
        return [problem for check in findings.CHECKS if check is not findings.chains for problem in check()]
    except DatabaseError:
        # Nodes are checked before anything is set up.
        return []


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines of columns as wide as they must be. A row of two cells tells a fault, in a sentence."""
    whole = [row for row in rows if len(row) == len(_COLUMNS)]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    widths[0] = max(len(row[0]) for row in rows)
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
