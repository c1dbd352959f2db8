"""The checks of `manage.py check_chains`: nodes, attesters, ENS, signers and registries."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.db import Error as DatabaseError
from django.db import connection as database

from chains.beacon import shipped
from chains.beacon.beacon_client import BeaconClient
from chains.beacon.era_files import EraFiles
from chains.beacon.jumps import BeaconChain
from chains.chains_file import Chain, Chains, Connection, chain_of_node
from chains.configured_signers import RemoteSigner, SignerError, SignerKey
from chains.contract_artifacts import NO_CONTRACT
from chains.encoding import in_units
from chains.nodes.chain_nodes import RpcNode
from chains.nodes.node_errors import ChainError, NodeUnavailable
from chains.nodes.rpc import RpcClient
from config.configured_chains import get_chains
from proving import sources
from proving.connections import open_connection
from proving.health import attester_checks, chain_watch, current_problems
from proving.health.current_problems import SeenProblem
from proving.health.problem_kinds import ProblemKind
from proving.models import FactsRegistry
from proving.reading import provable_blocks
from proving.reading.provable_blocks import Abilities, probe
from proving.registries import deployments, registry_setup
from proving.sending import signers
from proving.sources import NotYet, arbitrum, op_stack_games

# Cells by the method that tells the slots of calls.
_SLOTS = {"eth_createAccessList": "by list", "debug_traceCall": "by trace", "eth_call": "by trials", None: "none"}
_COLUMNS = ("node", "head", "age", "finalized", "slots", "pending", "EIP-2935", "proofs")


def check(say: Callable[[str], object]) -> list[SeenProblem]:
    """Print a line for each check, and return the problems. Raises `ChainsError`."""
    chains = get_chains()
    try:
        registries = list(FactsRegistry.objects.exclude(deployed_at=None).order_by("source_chain_id", "pk"))
    except DatabaseError:
        # Nodes can be checked before the database exists.
        registries = None
    problems = [*_check_database()]
    for chain in chains.chains:
        say(chain.label)
        there = {
            connection.source_id: connection
            for connection in chains.connections
            if connection.destination_id == chain.id
        }
        deployed = [row for row in registries or () if row.destination_chain_id == chain.id]
        in_use = {row.source_chain_id: row for row in deployed if not row.replaced_at}
        missing = [connection for source_id, connection in there.items() if source_id not in in_use]
        problems += _check_chain(chain, chains, missing, say, has_database=registries is not None)
        for row in deployed:
            if row.source_chain_id in there:
                say(f"  {_sentence_about_registry(row, there[row.source_chain_id])}")
        for source_id, connection in there.items():
            registry = in_use.get(source_id)
            if connection.attesters:
                contract = registry.block_hash_source if registry else NO_CONTRACT
                problems += attester_checks.examine(connection, contract, say)
            if registry and (connection.outbox or connection.anchor_state_registry):
                problems += _check_confirmed(connection, chains, say)
    if registries is None:
        return problems
    found = current_problems.read()
    for problem in found.harmless:
        say(f"Notice: {problem.sentence}")
    return problems + found.degrading


def _check_database() -> Iterator[SeenProblem]:
    """Yield a problem if the database doesn't answer. It may have no tables yet."""
    try:
        database.introspection.table_names()
    except DatabaseError:
        yield SeenProblem(ProblemKind.DATABASE_UNAVAILABLE, "The database does not answer.")


def check_node(url: str, say: Callable[[str], object]) -> list[SeenProblem]:
    """Print the abilities of a node, which needn't be in chains.toml. Return problems.

    Raises `ValueError` if `url` can't be used.
    """
    chain = chain_of_node(url, os.environ)
    (url,), (host,) = chain.rpc_urls, chain.hosts
    try:
        chain_id = RpcNode(chain.id, url, host).chain_id()
    except NodeUnavailable as error:
        return [SeenProblem(ProblemKind.CHAIN_UNAVAILABLE, error.for_operators.removesuffix(".") + ".")]
    say(f"A node of chain {chain_id}")
    if _check_nodes(chain.model_copy(update={"id": chain_id}), say, must_prove=True):
        return []
    return [SeenProblem(ProblemKind.NO_PROOFS, "The node can't serve a source chain: it has no proofs (eth_getProof).")]


def _check_chain(
    chain: Chain, chains: Chains, missing: Sequence[Connection], say: Callable[[str], object], *, has_database: bool
) -> list[SeenProblem]:
    """Print lines about a chain's nodes and signers. `missing` has the connections to it without a registry."""
    must_prove = chain.id in {connection.source_id for connection in chains.connections}
    _check_nodes(chain, say, must_prove=must_prove)
    problems = _check_beacon(chain, say)
    rpc = RpcClient(chain)
    seen = chain_watch.observe_chain(chain, rpc) if has_database else chain_watch.examine(chain, rpc)
    if chain in chains.destinations():
        if not chain.all_signers:
            say(f"  {signers.why_none(chain)}")
        for signer in chain.all_signers:
            _tell_of_signer(signer, seen.balances, missing, rpc, say)
            problems += _check_service(chain, signer, say)
    if not has_database:
        # Otherwise they are stored by now, and told as everywhere else.
        problems += seen.problems
    if seen.head:
        problems += _check_names(chain, chains, say)
    return problems


def _check_names(chain: Chain, chains: Chains, say: Callable[[str], object]) -> list[SeenProblem]:
    """Resolve an ENS name as a submission does, if names are resolved on this chain."""
    if chains.ens is None or chains.ens.chain_id != chain.id:
        return []
    # The import is slow, and only this function needs it.
    from chains import ens  # noqa: PLC0415

    try:
        ens.resolve(chain, ["eth"])
    except NodeUnavailable as error:
        return [SeenProblem(ProblemKind.NAMES_UNAVAILABLE, error.for_operators)]
    say("  ENS names work.")
    return []


def _check_confirmed(connection: Connection, chains: Chains, say: Callable[[str], object]) -> list[SeenProblem]:
    """Print the newest block that the rollup of a connection has confirmed."""
    try:
        opened = open_connection(connection.destination_id, connection.source_id)
        rollup = op_stack_games if connection.anchor_state_registry else arbitrum
        code = ", ".join(f"{name}: {at}" for name, at in rollup.implementations(opened).items())
        say(f"  Code that decides about {chains.chain(connection.source_id).label}: {code}.")
        newest = sources.of(connection).newest(opened)
    except deployments.Unusable:
        return []
    except ChainError as error:
        return [SeenProblem(ProblemKind.NOTHING_CONFIRMED, error.for_operators)]
    if isinstance(newest, NotYet):
        return [SeenProblem(ProblemKind.NOTHING_CONFIRMED, str(newest.reason))]
    say(f"  The newest confirmed block of {chains.chain(connection.source_id).label} is {newest}.")
    return []


def _check_nodes(chain: Chain, say: Callable[[str], object], *, must_prove: bool) -> bool:
    """Print a line about each node. Return whether at least one can be used."""
    abilities_by_host = [(host, _abilities(chain, url)) for host, url in zip(chain.hosts, chain.rpc_urls, strict=True)]
    rows = [
        (host, *_cells(abilities)) if isinstance(abilities, Abilities) else (host, abilities)
        for host, abilities in abilities_by_host
    ]
    for line in _aligned([_COLUMNS, *rows]):
        say(f"  {line}")
    for host, abilities in abilities_by_host:
        if isinstance(abilities, Abilities) and abilities.gas_cap is not None:
            say(
                f"  {host} gives calls and estimates only {abilities.gas_cap:,} gas, and proofs may need "
                f"{abilities.most_gas:,}. The setting of geth is --rpc.gascap."
            )
        if must_prove and isinstance(abilities, Abilities) and abilities.slots in {"eth_call", None}:
            found = "finds only those of known layouts" if abilities.slots else "finds none"
            say(f"  {host} doesn't tell which slots a call reads: a search {found}.")
        if isinstance(abilities, Abilities) and (end := abilities.provable.end):
            older = "" if abilities.provable.oldest is None else "older "
            say(f"  {host} proves no {older}block: {end.for_operators}")
            if abilities.has_unproven_state:
                say(
                    f"  {host} serves the state of block {abilities.provable.not_proven:,} without proofs. A geth with "
                    "--gcmode archive also proves it if you add --history.trienode 0 or --state.scheme hash."
                )
    return any(
        isinstance(abilities, Abilities) and not (must_prove and abilities.provable.oldest is None)
        for _, abilities in abilities_by_host
    )


def _sentence_about_registry(row: FactsRegistry, connection: Connection) -> str:
    """Compare a deployed registry's code now, and return a sentence about it."""
    if row.replaced_at:
        return f"Replaced on {row.replaced_at:%Y-%m-%d}, code {row.code_hash}: {row.replaced_because}"
    try:
        deployments.check(row)
    except ChainError as error:
        return f"The code of the facts registry {row} can't be read: {error.for_operators}"
    if row.refused:
        return row.refusal.for_operators
    sentence = f"The facts registry {row} has verified code, {row.code_hash}."
    if registry_setup.has_derived_address(connection, row):
        with_these = ", with these attesters" if connection.attesters else ""
        sentence += f" It has the same address everywhere{with_these}."
    if row.reader:
        sentence += f" The facts reader {row.reader} reads it."
    if row.beacon_history:
        sentence += f" So has its beacon history, {row.beacon_history}."
        known = f"before slot {row.history_end:,}" if deployments.history_ends_at(row) else "without a known end"
        sentence += f" It knows the beacon chain {known}."
    if why_ends := deployments.why_history_ends(row):
        return f"{sentence} {deployments.history_wait(row, why_ends)}"
    if why_not := deployments.why_no_jump(row):
        command = f"manage.py deploy_registry {row.destination_chain_id} {row.source_chain_id} --replace"
        return f"{sentence} {why_not} The operator may run: {command}"
    return sentence


def _abilities(chain: Chain, url: str) -> Abilities | str:
    """Return the node's abilities, or a sentence with its problem."""
    alone = chain.model_copy(update={"rpc_urls": (url,)})
    rpc = RpcClient(alone)
    try:
        return probe(rpc, provable_blocks.accounts_with_ether())
    except NodeUnavailable as error:
        # The output line already begins with the host.
        reason = " ".join(error.reasons).removeprefix(f"{alone.hosts[0]} ") or str(error)
        return f"{reason}; the node said: “{error.message}”" if error.message else reason
    except ChainError as error:
        return error.for_operators


def _cells(abilities: Abilities) -> tuple[str, ...]:
    head, finalized, oldest = abilities.head, abilities.finalized, abilities.provable.oldest
    if oldest is None:
        proofs = "none"
    elif oldest <= 1:
        proofs = f"back to block {oldest}"
    else:
        proofs = f"at least {head.number - oldest:,} blocks back"
    return (
        f"{head.number:,}",
        f"{round(time.time() - head.timestamp):,} s",
        "none" if finalized is None else f"{finalized:,}",
        _SLOTS[abilities.slots],
        "yes" if abilities.knows_pending else "no",
        "yes" if abilities.keeps_hashes else "no",
        proofs,
    )


def _check_service(
    chain: Chain, signer: SignerKey | RemoteSigner, say: Callable[[str], object]
) -> Iterator[SeenProblem]:
    """Ask a signer's service which accounts it has, and print a line. Nothing is signed."""
    if isinstance(signer, RemoteSigner):
        if problem := signer.problem():
            yield SeenProblem(
                ProblemKind.SIGNER_NOT_SIGNING,
                f"The service {signer.host} of {signer.address} on {chain.label} {problem}.",
            )
        else:
            say(f"  The service {signer.host} answers for it.")


def _tell_of_signer(
    signer: SignerKey | RemoteSigner,
    balances: Mapping[str, int],
    missing: Sequence[Connection],
    rpc: RpcClient,
    say: Callable[[str], object],
) -> None:
    """Print the signer's address, its balance and the amount that it needs first, or why these are unknown."""
    chain = rpc.chain
    try:
        address = signer.address
        if address not in balances:
            # The chain's nodes don't answer. Another line reports that.
            return
        balance = balances[address]
        currency, minimum = chain.native_currency, chain.minimum_signer_balance
        say(f"  The signer {address} holds {in_units(balance)} {currency}; it stops below {minimum} {currency}.")
        if missing:
            needed = registry_setup.needed(chain, missing, rpc)
            registries = "1 registry" if len(missing) == 1 else f"{len(missing)} registries"
            deploying = f"deploying {registries} takes at most {chain.cost(needed.deploying)} at present"
            if not needed.deploying:
                deploying = "all contracts are there already"
            costs = f"{deploying}, and each balance that is proven takes about {chain.cost(needed.each_balance)}."
            if balance < needed.least:
                say(f"  To begin on {chain.label}, send {chain.cost(needed.to_send(balance))} to {address}: {costs}")
            else:
                say(f"  On {chain.label}, {costs}")
    except SignerError as error:
        say(f"  {error}")
    except ChainError as error:
        say(f"  {error.for_operators}")


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines with aligned columns. A row of two cells has a host and a sentence about its problem."""
    whole = [row for row in rows if len(row) == len(_COLUMNS)]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    widths[0] = max(len(row[0]) for row in rows)
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


# --- Beacon nodes and era files ---------------------------------------------------------------------------------------


def _check_beacon(chain: Chain, say: Callable[[str], object]) -> list[SeenProblem]:
    """Print a line about each beacon node and each location of era files. Return a problem if none can be used."""
    if chain.beacon_chain is None:
        return []
    return [*_check_beacon_nodes(chain, chain.beacon_chain, say), *_check_era_files(chain, chain.beacon_chain, say)]


def _check_beacon_nodes(chain: Chain, beacon_chain: BeaconChain, say: Callable[[str], object]) -> list[SeenProblem]:
    answers, tells_summaries, unfit = False, False, list[str]()
    for url, host in zip(chain.beacon_urls, chain.beacon_hosts, strict=True):
        client = BeaconClient(chain.model_copy(update={"beacon_urls": (url,)}), beacon_chain)
        try:
            final = client.header("finalized")
        except NodeUnavailable as error:
            say(f"  Beacon node {'; '.join(error.reasons) or f'{host}: {error}'}".removesuffix(".") + ".")
            continue
        if client.unfit:
            say(f"  Beacon node {client.unfit[0]}.")
            unfit += client.unfit
            continue
        answers, newest = True, _slot_with_time(beacon_chain, final.slot)
        try:
            count = len(client.summaries(final).summaries)
        except NodeUnavailable as error:
            say(f"  Beacon node {host}: {newest} is final. {error}")
        else:
            tells_summaries = True
            say(f"  Beacon node {host}: {newest} is final, and its state has {count:,} summaries.")
    # The observation of the chain has a problem if no node answers.
    if tells_summaries or not (answers or unfit):
        return []
    lacking = "returns historical summaries, so no new jump can begin" if answers else "can be used"
    sentences = [f"No beacon node in beacon_urls of {chain.label} {lacking}.", *(f"{each}." for each in unfit)]
    return [SeenProblem(ProblemKind.NO_BEACON_NODE, " ".join(sentences))]


def _slot_with_time(chain: BeaconChain, slot: int) -> str:
    """Return a slot with its time, which shows whether a node is behind. The slot isn't verified."""
    try:
        return f"slot {slot:,}, of {datetime.fromtimestamp(chain.time_of(slot), UTC):%Y-%m-%d %H:%M} UTC,"
    except (ValueError, OverflowError, OSError):
        return f"slot {slot:,}"


def _check_era_files(chain: Chain, beacon_chain: BeaconChain, say: Callable[[str], object]) -> list[SeenProblem]:
    can_be_read = False
    for place in chain.era_files:
        label = f"folder {place.name}" if isinstance(place, Path) else urlsplit(place).netloc.rpartition("@")[2]
        if isinstance(place, Path) and not place.is_dir():
            say(f"  Era files, {label}: there is no such folder.")
            continue
        files = EraFiles(beacon_chain, [place])
        try:
            sizes = {name: files.size(name) for name in _newest(beacon_chain, files)}
        except NodeUnavailable as error:
            say(f"  Era files, {label}: {error}")
            continue
        can_be_read = True
        listed = (f"no {name}" if size is None else f"{name}, {size / 1e6:,.0f} MB" for name, size in sizes.items())
        say(f"  Era files, {label}: {'; '.join(listed)}.")
    if can_be_read or not chain.era_files:
        return []
    return [SeenProblem(ProblemKind.NO_ERA_FILES, f"No place of era_files of {chain.label} is readable.")]


def _newest(chain: BeaconChain, files: EraFiles) -> list[str]:
    """Return names of the newest files of each kind, as far as the shipped lists have them.

    Otherwise, return a name that doesn't exist.
    """
    names = []
    if epochs := shipped.epochs(chain):
        names.append(files.era1_name(len(epochs) - 1, epochs[-1]))
    if roots := shipped.historical_roots(chain):
        names.append(files.era_name(len(roots) - 1, roots[-1]))
    return names or [files.era_name(0, bytes(4))]
