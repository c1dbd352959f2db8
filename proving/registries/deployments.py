"""Facts registries: calls to them, the registry of each connection, and the check of its code."""

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import abi_to_signature, collapse_if_tuple, function_abi_to_4byte_selector
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.contract_artifacts import (
    NO_CONTRACT,
    create2_address,
    earlier_registry,
    load_artifact,
)
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.chain_nodes import is_answer
from chains.nodes.node_errors import ChainError, InvalidReply, NodeUnavailable, Reverted
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import KEPT_BELOW, RpcClient, result
from config.configured_chains import get_chains, get_rpc, have_changed
from proving.models import FactsRegistry
from queries import clock
from queries.models import Batch, BatchStatus
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# The end of a beacon history without a known one. A column can't hold a larger number.
NO_KNOWN_END = 2**63 - 1

# --- Calls of contracts -----------------------------------------------------------------------------------------------

Call = tuple[str, bytes]
"""An address and the calldata to send there."""


OUTDATED = {"UnknownBlock", "HeaderMismatch"}
"""The names of reverts that show that the chain has changed since it was observed."""


@dataclass(frozen=True)
class RevertReason:
    """A custom error of the contract with its arguments. The name is empty for any other revert."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})" if self.name else "reverted without a reason"


class Registry:
    """An encoder of calls to the registry at `address`. It makes no calls itself."""

    def __init__(self, address: str) -> None:
        self.address = to_checksum_address(address)

    def state_root(self, block_number: int) -> Call:
        """Return a call that answers 32 bytes: the state root, or zeros if the block's header is not accumulated."""
        return self._call("stateRoot", block_number)

    def vouches(self, block_number: int, block_hash: bytes) -> Call:
        """Return a call that answers a word: whether the registry would trust this header (number and hash) now."""
        return self._call("vouches", block_number, block_hash)

    def decode_vouches(self, answer: bytes | ChainError) -> bool:
        """Return the result of a call of `vouches`. Raises `ChainError` if the answer is an error."""
        if not (word := _word(answer)):
            raise InvalidReply(f"There is no facts registry of this version at {self.address}.")
        return any(word)

    @staticmethod
    def decode_try(answer: bytes) -> bytes | None:
        """Return the fact's word (32 bytes). None if the fact isn't proven."""
        return answer[32:] if any(answer[:32]) else None

    def prove_timestamp(self, header: bytes, following: bytes, timestamp: int) -> bytes:
        """Return calldata that proves that the header's block is the latest at a time.

        `following` is the next header.
        """
        return self._call("proveTimestamp", header, following, timestamp)[1]

    def _call(self, function: str, *arguments: Any) -> Call:
        return self.address, _calldata("FactsRegistry", function, *arguments)


def _word(answer: bytes | ChainError) -> bytes:
    """Return an answer of 32 bytes. Empty for a revert, or bytes of another length. Raises any other error."""
    word = b"" if isinstance(answer, Reverted) else result(answer)
    return word if len(word) == 32 else b""


def call(contract: str, address: str, function: str, *arguments: Any) -> Call:
    """Return a call of the contract with this name at an address."""
    return to_checksum_address(address), _calldata(contract, function, *arguments)


def in_one_call(address: str, calls: Sequence[Call]) -> Call:
    """Return one call that makes all the calls in order, all or nothing, through the `Multicall` at an address."""
    return calls[0] if len(calls) == 1 else call("Multicall", address, "run", calls)


def selector(contract: str, function: str) -> bytes:
    """Return the selector (4 bytes) of a function of the contract, by its name, or its signature if it has several."""
    return _selector_and_types(contract, function)[0]


def _calldata(contract: str, function: str, *arguments: Any) -> bytes:
    # web3's contract objects take milliseconds to make, and each reconcile of each block would need one.
    named, types = _selector_and_types(contract, function)
    return named + encode(types, arguments)


@cache
def _selector_and_types(contract: str, function: str) -> tuple[bytes, list[str]]:
    abi = load_artifact(contract).abi
    (entry,) = (
        candidate
        for candidate in abi
        if candidate["type"] == "function" and function in {candidate["name"], abi_to_signature(candidate)}
    )
    return function_abi_to_4byte_selector(entry), [collapse_if_tuple(argument) for argument in entry["inputs"]]


def creation_code(name: str, *arguments: Any) -> bytes:
    """Return the creation code of the contract `name`, including constructor arguments."""
    artifact = load_artifact(name)
    inputs = next((entry["inputs"] for entry in artifact.abi if entry["type"] == "constructor"), [])
    types = [collapse_if_tuple(argument) for argument in inputs]
    return artifact.bytecode + encode(types, arguments)


def revert_reason(data: bytes) -> RevertReason:
    """Decode revert data as a custom error of one of the contracts that this service calls."""
    for contract in (
        "FactsRegistry",
        "AttestedBlockHashSource",
        "OpStackBlockHashSource",
        "OpStackGamesBlockHashSource",
        "ArbitrumSlotBlockHashSource",
        "NativeBlockHashSource",
        "GloasBeaconBlockHashSource",
        "GloasBeaconHistory",
        "Multicall",
        "FactsReader",
    ):
        for error in load_artifact(contract).abi:
            if error["type"] == "error" and function_abi_to_4byte_selector(error) == data[:4]:
                types = [collapse_if_tuple(argument) for argument in error["inputs"]]
                try:
                    return RevertReason(error["name"], decode(types, data[4:]))
                except DecodingError:
                    # The contract can't have sent malformed arguments, so the node is at fault.
                    return RevertReason("")
    return RevertReason("")


# --- Registries of connections ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deployment:
    """A deployed registry: its row, the contract to call, and the addresses of its other contracts."""

    row_id: int
    contract: Registry
    block_hash_source: str
    multicall: str
    beacon_history: str = ""
    """Address of the contract that proves old blocks by the beacon chain; empty: it has none."""
    history_end: int | None = None
    """The first slot whose block that contract doesn't know; None: not known."""
    why_history_ends: WaitReason | None = None
    """The wait of blocks after that slot. None: the history has no known end."""
    jump_origin: int | None = None
    """Number of the source's block that the last jump began at, if one did."""
    reader: str = ""
    """Address of a `FactsReader` that reads it; empty: none is known."""
    takes_masks: bool = True
    """False for a registry of version 0.3.0. See `chains.tries.packed.encode`."""

    @property
    def addresses(self) -> Sequence[str]:
        """Return the addresses to which proofs for this registry are sent."""
        return [self.contract.address, self.multicall]


class Unusable(Exception):
    """A connection can't be used. The reason says why, and what its operator must do."""

    def __init__(self, reason: WaitReason) -> None:
        self.reason = reason
        super().__init__(str(reason))


# Seconds for which a process relies on a registry's code after it compared the code, and after the code was refused.
# Code hardly ever changes; a refusal may be a node's mistake.
_USED_SECONDS, _REFUSED_SECONDS = 600, 10
# The time of each comparison, by client. The inner keys are the registry's address, and the registry on which its block
# hash source relies. A new client has compared nothing.
_compared_at: WeakKeyDictionary[RpcClient, dict[tuple[str, ...], float]] = WeakKeyDictionary()


def find(destination: int, source: int) -> Deployment:
    """Return the registry of a connection. Its code has been compared recently by this process.

    Raises `Unusable`, and `NodeUnavailable` or `RpcRefused` if the code can't be read.
    """
    row = _row(destination, source)
    compared_at = _compared_at.setdefault(get_rpc(destination), {})
    now = time.monotonic()
    compared = (row.address, *((parent.address, parent.refused) if (parent := _of_parent(row)) else ()))
    if now - compared_at.get(compared, -math.inf) > (_REFUSED_SECONDS if row.refused else _USED_SECONDS):
        check(row)
        compared_at[compared] = now
    return _usable(row)


def noted(destination: int, source: int) -> Deployment:
    """Return the registry according to its stored check.

    No node is asked, and nothing is written. Raises `Unusable`.
    """
    return _usable(_row(destination, source))


def why_no_jump(row: FactsRegistry) -> str:
    """Return a sentence if the registry can't jump although its source chain has a beacon chain. Empty if it can."""
    if row.beacon_history or get_chains().chain(row.source_chain_id).beacon_chain is None:
        return ""
    return f"The facts registry at {row} was deployed without a beacon history, so only hops reach old blocks."


def why_history_ends(row: FactsRegistry) -> str:
    """Return a sentence if the registry's beacon history knows no blocks from a slot on. Empty if none is known."""
    ends_at = history_ends_at(row)
    if ends_at is None:
        return ""
    first = f"slot {row.history_end:,} on, of {ends_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"The beacon history of the facts registry at {row} knows no block from {first}."


def would_know_more(row: FactsRegistry) -> bool:
    """Return whether the beacon history of a new registry would know later blocks than that of this one."""
    end, chain = row.history_end, get_chains().chain(row.source_chain_id).beacon_chain
    return end is not None and chain is not None and end < min(chain.end, NO_KNOWN_END)


def history_ends_at(row: FactsRegistry) -> datetime | None:
    """Return the time of the first slot that the registry's beacon history doesn't know. None if it isn't known."""
    end, chain = row.history_end, get_chains().chain(row.source_chain_id).beacon_chain
    if end in {None, NO_KNOWN_END} or chain is None:
        return None
    return datetime.fromtimestamp(min(chain.time_of(end), clock.LAST_SECOND), UTC)


def history_wait(row: FactsRegistry, problem: str) -> WaitReason:
    """Return the wait for a registry whose beacon history ends later, or for a service that knows later blocks."""
    if not would_know_more(row):
        return wait("beacon_chain_ends", problem=problem, source=row.source_chain_id)
    return wait("history_ends", problem=problem, chain=row.destination_chain_id, source=row.source_chain_id)


def why_replaceable(row: FactsRegistry) -> str:
    """Return a sentence if a new registry could do more than this one, which may be used. Empty if it couldn't."""
    if not _is_current(row):
        return f"The facts registry at {row} has an earlier version."
    return why_no_jump(row) or (why_history_ends(row) if would_know_more(row) else "")


_proving_by_roots: WeakKeyDictionary[RpcClient, set[str]] = WeakKeyDictionary()
"""Addresses of histories with block roots, by client."""


def proves_by_roots(rpc: RpcClient, history: str) -> bool:
    """Return whether a beacon history accepts branches through the block roots in a state.

    The earlier contract, `BeaconHistory`, accepts none, and has no `gloas`. Raises `NodeUnavailable`, `RpcRefused`.
    """
    known = _proving_by_roots.setdefault(rpc, set())
    # A node that lags has no contract there yet, so only this answer is remembered.
    if history not in known and any(_word(rpc.eth_calls([call("GloasBeaconHistory", history, "gloas")])[0])):
        known.add(history)
    return history in known


def deployed(destination: int, source: int) -> FactsRegistry | None:
    """Return a connection's registry that is in use. None: none is deployed. Its code isn't checked."""
    rows = FactsRegistry.in_use.filter(destination_chain_id=destination, source_chain_id=source)
    return rows.exclude(deployed_at=None).first()


def _row(destination: int, source: int) -> FactsRegistry:
    row = deployed(destination, source)
    if row is None:
        raise Unusable(not_deployed(destination, source))
    return row


def _usable(row: FactsRegistry) -> Deployment:
    if row.refused:
        raise Unusable(row.refusal)
    return Deployment(
        row.pk,
        Registry(row.address),
        row.block_hash_source,
        row.multicall,
        row.beacon_history,
        row.history_end,
        history_wait(row, why) if (why := why_history_ends(row)) else None,
        row.jump_origin,
        row.reader,
        takes_masks=_is_current(row),
    )


def _is_current(row: FactsRegistry) -> bool:
    return row.code_hash in {"", hex_data(keccak(expected_code(row)))}


def not_deployed(destination: int, source: int) -> WaitReason:
    """Return the wait for the operator to deploy a connection's registry."""
    return wait("not_deployed", chain=destination, source=source)


def connected(destination: int) -> list[FactsRegistry]:
    """Return the deployed registries of a destination's connections, in the order of their source chains' ids."""
    rows = FactsRegistry.in_use.filter(destination_chain_id=destination, deployed_at__isnull=False)
    return [
        row for row in rows.order_by("source_chain_id") if get_chains().connection(row.source_chain_id, destination)
    ]


# Maximum registries of a FactsReader.
MOST_OF_A_READER = 16


@dataclass(frozen=True)
class Reader:
    """The `FactsReader` of some registries of a destination. It may not be deployed."""

    creation: bytes
    """The creation code, including constructor arguments."""
    code: bytes
    """The code once it is deployed."""

    @property
    def address(self) -> str:
        return create2_address(self.creation)


def reader_of(registries: Mapping[int, str]) -> Reader | None:
    """Return the reader of registries, by their source chains' ids. None if there are none, or too many."""
    in_order = dict(sorted(registries.items()))
    if not 0 < len(in_order) <= MOST_OF_A_READER:
        return None
    entries = [source << 160 | int(address, 16) for source, address in in_order.items()]
    entries = [0] * (MOST_OF_A_READER - len(entries)) + entries
    code = load_artifact("FactsReader").deployed(**{f"_entry{place}": entry for place, entry in enumerate(entries)})
    return Reader(creation_code("FactsReader", list(in_order.values())), code)


def reader(destination: int) -> Reader | None:
    """Return the reader of the registries that may be used on a destination."""
    return reader_of(_usable_addresses(connected(destination)))


def _usable_addresses(rows: Iterable[FactsRegistry]) -> dict[int, str]:
    """Return the addresses of the registries that may be used, by their source chains' ids."""
    return {row.source_chain_id: row.address for row in rows if not row.refused}


def _reads_only(code: bytes, registries: Mapping[int, str]) -> bool:
    """Return whether this is the code of a reader of some of these registries, and of no other."""
    entries = (
        int.from_bytes(code[place : place + 32]) for place, *_ in load_artifact("FactsReader").immutables.values()
    )
    read = {source: registries[source] for entry in entries if (source := entry >> 160) in registries}
    return (reader := reader_of(read)) is not None and reader.code == code


def check(row: FactsRegistry) -> None:
    """Compare the code of a deployed registry, and store whether the registry may be used. Look for its reader, too.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    rpc = get_rpc(row.destination_chain_id)
    others = [each for each in connected(row.destination_chain_id) if each.pk != row.pk]
    usable = {**_usable_addresses(others), row.source_chain_id: row.address}
    # If there is none of all registries of now, a reader of before may still read this one.
    of_all = reader_of(usable)
    readers = [address for address in (of_all and of_all.address, row.reader) if address]
    contracts, calls = list(filter(None, [row.address, row.multicall, row.beacon_history])), _calls(row)
    addresses = list(dict.fromkeys([*contracts, *readers]))
    told, answers = rpc.ask(list(map(questions.code, addresses)), [questions.call(*each) for each in calls.values()])
    codes = dict(zip(addresses, map(result, told), strict=True))
    words = dict(zip(calls, map(_word, answers), strict=True))
    refused = _why_refused(row, codes, words)
    if refused and _let_wrong_rest(rpc, contracts, list(calls.values()), [*map(codes.get, contracts), *answers]):
        # One more node rests each time, and is compared no longer, so this ends.
        check(row)
        return
    if refused and {*rpc.syncing_nodes()} >= {*rpc.chain.hosts}:
        return  # The contracts may stand in blocks that the nodes lack.
    # A reader that also reads a registry that must not be used would answer with facts that may be forged.
    right = [address for address in readers if not refused and _reads_only(codes[address], usable)]
    checked = {
        "code_hash": hex_data(keccak(codes[row.address])),
        "refused": refused,
        "reader": right[0] if right else "",
        "history_end": None if refused else _history_end(row, words),
    }
    if checked == {name: getattr(row, name) for name in checked}:
        return
    for name, value in checked.items():
        setattr(row, name, value)
    FactsRegistry.objects.filter(pk=row.pk).update(**checked)
    if row.refused:
        logger.error("%s", row.refusal)


def _calls(row: FactsRegistry) -> dict[str, Call]:
    """Return calls of the contracts that the registry asks, by function. Their answers show whether it may be used."""
    calls = {}
    connection = get_chains().connection(row.source_chain_id, row.destination_chain_id)
    if connection and connection.outbox:
        for getter in ("outbox",) if connection.parent_id is None else ("outbox", "registry"):
            calls[getter] = call("ArbitrumSlotBlockHashSource", row.block_hash_source, getter)
    if row.beacon_history:
        # The earlier contract, `BeaconHistory`, has no `gloas`.
        for getter in ("gloas", "end"):
            calls[getter] = call("GloasBeaconHistory", row.beacon_history, getter)
    return calls


def _let_wrong_rest(rpc: RpcClient, addresses: Sequence[str], calls: Sequence[Call], earlier: Sequence[object]) -> bool:
    """Let nodes rest that tell other code of one of these contracts than the chain's state has.

    A node may tell otherwise when it is compared, so `earlier` has the answers that came first. Return whether one more
    node rests now. Raises `NodeUnavailable` if answers differ, and no proof shows which is right: a registry is neither
    refused nor used then.
    """
    told: dict[str, Sequence[object]] = {
        **rpc.ask_each([*map(questions.code, addresses), *(questions.call(*each) for each in calls)])
    }
    hosts = set(told)
    told |= {"an earlier answer": earlier} if told else {}
    for place, address in enumerate([*addresses, *(to for to, _ in calls)]):
        answers = {host: of_node[place] for host, of_node in told.items() if is_answer(of_node[place])}
        # A revert differs from any data.
        data = {host: answer if isinstance(answer, bytes) else None for host, answer in answers.items()}
        if len({*data.values()}) < 2:
            continue
        is_code = place < len(addresses)
        account = rpc.proven_account(address, max(1, rpc.head().number - KEPT_BELOW)) if is_code else None
        # Code never changes, but an earlier block may lack it.
        right = {host for host, code in data.items() if account and code and keccak(code) == account.code_hash}
        if not right or not (wrong := hosts & data.keys() - right):
            raise NodeUnavailable(
                f"Nodes of {rpc.chain.label} differ about the contract at {address}: {', '.join(data)}."
            )
        for host in wrong:
            rpc.rest(host, f"{host} tells other code at {address} than the chain's state has")
        return True
    return False


def _immutables(row: FactsRegistry) -> dict[str, int]:
    return {
        "sourceChainId": row.source_chain_id,
        "blockHashSource": int(row.block_hash_source, 16),
        "historyWindow": row.history_window,
        "beaconChainHistory": int(row.beacon_history or NO_CONTRACT, 16),
    }


def expected_code(row: FactsRegistry) -> bytes:
    """Return the code of this version's contract with the registry's values."""
    return load_artifact("FactsRegistry").deployed(**_immutables(row))


def _why_refused(row: FactsRegistry, codes: Mapping[str, bytes], words: Mapping[str, bytes]) -> str:
    """Return why the registry must not be used, by its contracts' codes and answers to `_calls`. Empty if it may."""
    destination, source, code = row.destination_chain_id, row.source_chain_id, codes[row.address]
    configured = get_chains().chain(source).history_window
    if not code:
        why = (
            f"chain {destination} has no code there. Is it another chain now, or was a development chain started again?"
        )
    elif code not in {expected_code(row), earlier_registry().deployed(**_immutables(row))}:
        why = "its code differs from this version's contract."
    elif row.history_window != configured:
        why = (
            f"it was deployed for a history with {row.history_window} slots, and chain {source} has {configured} in "
            f"chains.toml{', as it was when this process began' if have_changed() else ''}."
        )
    elif row.multicall and not codes[row.multicall]:
        # Calls of it would succeed and do nothing.
        why = f"its Multicall at {row.multicall} has no code."
    elif not (why := _why_source_is_unfit(row, words) or _why_history_is_unfit(row, codes, words)):
        return ""
    return f"The facts registry at {row} is not used: {why}"


def _why_history_is_unfit(row: FactsRegistry, codes: Mapping[str, bytes], words: Mapping[str, bytes]) -> str:
    """Return why a registry's beacon history must not be used. Empty if it may, or there is none.

    The contract's `gloas` and `end` may differ from this version's, and an earlier contract has no `gloas`: proofs of
    blocks before an unknown fork stay right, and the contract refuses later blocks (docs/concepts/soundness.md, "The
    next fork"). But it must not read an earlier block as one of Gloas.
    """
    if not row.beacon_history:
        return ""
    chain = get_chains().chain(row.source_chain_id)
    if chain.beacon_chain is None:
        return (
            f"the values of its beacon history at {row.beacon_history} can't be compared, because chains.toml has no "
            f"[chains.beacon_chain] for chain {chain.id}."
        )
    gloas, end = _forks(words)
    contract = load_artifact("GloasBeaconHistory" if gloas else "BeaconHistory")
    expected = contract.deployed(**chain.beacon_chain.immutables | {"gloas": gloas, "end": end})
    if codes[row.beacon_history] == expected and not 0 < gloas < min(chain.beacon_chain.gloas, end):
        return ""
    return (
        f"the code of its beacon history at {row.beacon_history} differs from this version's contract with the values "
        f"of chain {chain.id}."
    )


def _history_end(row: FactsRegistry, words: Mapping[str, bytes]) -> int | None:
    """Return the first slot whose block a fit beacon history doesn't know. None if there is no history."""
    chain = get_chains().chain(row.source_chain_id).beacon_chain
    if not row.beacon_history or chain is None:
        return None
    gloas, end = _forks(words)
    return min(end, chain.end if gloas == chain.gloas else chain.gloas, NO_KNOWN_END)


def _forks(words: Mapping[str, bytes]) -> tuple[int, int]:
    """Return `gloas` and `end` of a beacon history. `gloas` is zero if the contract has an earlier version."""
    return int.from_bytes(words["gloas"]), int.from_bytes(words["end"])


def _why_source_is_unfit(row: FactsRegistry, words: Mapping[str, bytes]) -> str:
    """Return why the block hash source of an Arbitrum chain must not be used. Empty if it may.

    It must read the configured Outbox, and the parent's registry that is in use.
    """
    connection = get_chains().connection(row.source_chain_id, row.destination_chain_id)
    if connection is None or connection.outbox is None:
        return ""
    read = [words[getter] for getter in ("outbox", "registry") if getter in words]
    if not all(read):
        return f"its block hash source at {row.block_hash_source} is none for {connection.block_hash_source}."
    outbox, *registry = (to_checksum_address(word[12:]) for word in read)
    if outbox != connection.outbox:
        return f"its block hash source reads the Outbox {outbox}, and chains.toml names {connection.outbox}."
    parent = _of_parent(row)
    if registry and (parent is None or registry != [parent.address]):
        relied_on = FactsRegistry.objects.filter(destination_chain_id=row.destination_chain_id, address=registry[0])
        because = relied_on.values_list("replaced_because", flat=True).first() or ""
        return (
            f"its block hash source reads the facts registry at {registry[0]} for chain {connection.parent_id}, which "
            f"is not the one in use. {because}".strip()
        )
    return "" if parent is None else parent.refused and f"its block hash source relies on another. {parent.refused}"


def _of_parent(row: FactsRegistry) -> FactsRegistry | None:
    """Return the registry of a rollup's parent chain on which this registry's block hash source relies, if it does."""
    connection = get_chains().connection(row.source_chain_id, row.destination_chain_id)
    if connection is None or connection.parent_id is None:
        return None
    return deployed(row.destination_chain_id, connection.parent_id)


def vouches(
    rpc: RpcClient, registry: Deployment, blocks: Sequence[tuple[int, bytes]], *, at: BlockIdentifier = "pending"
) -> list[bool]:
    """Return, for each (number, hash), whether a transaction that is mined next could bring that header.

    `rpc` is the destination's. By default the pending block is asked, because only that block's state has the hash of
    the current head.
    """
    answers = rpc.ask([questions.call(*registry.contract.vouches(*block), at) for block in blocks])
    return [registry.contract.decode_vouches(answer) for answer in answers]


def all_of(destination: int, source_chains: Collection[int]) -> list[FactsRegistry]:
    """Return the registries of these connections, including replaced ones."""
    rows = FactsRegistry.objects.filter(destination_chain_id=destination, source_chain_id__in=source_chains)
    return list(rows.order_by("source_chain_id", "pk"))


def of_batch(batch: Batch, rows: Collection[FactsRegistry]) -> dict[int, FactsRegistry]:
    """Return, by source chain, the registry of `rows` that holds the batch's facts, or is going to hold them.

    The facts of a batch that is DONE are in the registry of that time. If the registry is replaced, open batches start
    again.
    """
    done_at = batch.finished_at if batch.status == BatchStatus.DONE else None
    registries: dict[int, FactsRegistry] = {}
    for row in rows:
        if row.replaced_at is None or (done_at is not None and done_at <= row.replaced_at):
            registries.setdefault(row.source_chain_id, row)
    return {source: row for source, row in registries.items() if row.deployed_at}
