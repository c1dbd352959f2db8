"""Gas of the transactions that prove facts, on a development chain whose history contract vouches for the block.

`make bench-gas` measures the recorded cases, if there are any, and generated cases of the same shape. Each transaction
runs on two chains. One has today's rules and gives `tx`, the gas that the sender pays. The other has the rules before
EIP-7623, whose floor would hide the rest. It gives `exec`, the used gas without 21,000 and without the gas of the
calldata. A third chain gives `amsterdam`, the gas that the sender pays after that fork: a geth, which `make geth`
builds, runs the transaction again on the state before it.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import rlp
from eth_abi.abi import encode
from eth_account import Account
from eth_utils.crypto import keccak

from chains.attestation import AttestationRequest, Domain, sign
from chains.beacon import jumps, ssz
from chains.beacon.blocks import BLOCK_HASH, BODY_DEPTH, EXECUTION_PAYLOAD, BeaconHeader, ExecutionBranch
from chains.beacon.jumps import Anchor, BeaconChain
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import hex_data
from chains.prices import AMSTERDAM, OSAKA, gas_of_calldata
from chains.tries import packed, packed_entries
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, AccountToProve, BlockBranch
from contracts.build import run_compiler
from devnet.devchain import PROJECT, DevChain
from devnet.geth import GETH, Geth
from tests.contracts import rollup_sources, state_provers, tries, withdrawal_walks
from tests.contracts.beacon_roots import BeaconRoots
from tests.contracts.beacon_worlds import SMALL, BeaconWorld
from tests.contracts.blocks import Outcome
from tests.contracts.deployed import SENDER, Deployed
from tests.contracts.rollup_sources import EXTRA_DATA, ROLLUP
from tests.contracts.state_provers import ShownSlot
from tests.contracts.walks import receipt_nodes, receipt_trie
from tests.fixtures_folder import FOLDER, unhex

HISTORY = hex_data(packed.HISTORY_ADDRESS)
WINDOW = 8191
_GAS, _AMSTERDAM_GAS = hex(OSAKA.most_gas), hex(50_000_000)
# Addresses below are precompiled contracts. They are the same on all chains.
_AFTER_PRECOMPILES = 2**16
_CHAIN_ID, _SEPOLIA = 31_337, 11_155_111
# Block number of the generated cases, and their random seed.
_BLOCK = 17_463_226
_SEED = 17

_BALANCE = packed.NONCE_AND_BALANCE


@dataclass(frozen=True)
class Result:
    """Gas and bytes of one transaction. If it proves several accounts, they are divided by `heads`.

    `floor` is the cost of the bytes alone (EIP-7623). For a read, `floor` is zero, and `tx` is the gas with the cost of
    a call.
    """

    case: str
    exec: int
    tx: int
    calldata_bytes: int
    floor: int
    heads: int = 1
    amsterdam: int = 0
    """Gas of the transaction after Amsterdam; zero for a read, and without geth."""


@dataclass(frozen=True)
class Case:
    """One transaction: calldata of the registry, or several calls through `Multicall`.

    The transactions in `before` are sent first and not counted.
    """

    name: str
    number: int
    block_hash: bytes
    calldata: bytes | Sequence[bytes]
    before: Sequence[bytes] = ()
    heads: int = 1
    others: Sequence[tuple[int, bytes]] = ()
    """Further blocks with a vouched hash: number and hash."""
    header: bytes = b""
    accounts: Sequence[AccountToProve] = ()
    """The accounts to prove, if all belong to one block."""
    beacon: BeaconChain | None = None
    """Arguments of the registry's beacon history, without the chain's id."""


class Lab:
    """Both chains, at a height whose history includes the block, beyond the blocks that BLOCKHASH reaches."""

    def __init__(self, number: int, geth: Geth | None = None) -> None:
        self._number, self._geth = number, geth
        self._stack = ExitStack()
        self._chains: list[tuple[DevChain, str]] = []

    def __enter__(self) -> Self:
        height = str(self._number + 300)
        chains = [
            self._stack.enter_context(DevChain(hardfork=hardfork, extra_args=("--number", height)))
            for hardfork in (None, "cancun")
        ]
        # The older rules have no history contract, so its code is copied.
        chains[1].rpc("anvil_setCode", HISTORY, chains[0].rpc("eth_getCode", HISTORY, "latest"))
        self._chains = [(chain, Deployed(chain, "NativeBlockHashSource", WINDOW).address) for chain in chains]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, case: Case) -> Result:
        sent = [self._gas(chain, source, case) for chain, source in self._chains]
        return result_of(case.name, *sent, heads=case.heads)

    def read(self, case: Case, name: str, function: str, *arguments: object) -> Result:
        """Measure the gas of a contract that reads a fact, without the gas of calling that contract."""
        return self.ask(name, self.known(case), function, *arguments)

    def known(self, case: Case) -> Deployed:
        """Return a registry to which the case was sent."""
        chain, source = self._chains[1]
        registry = self._registry(chain, source, case)
        assert isinstance(case.calldata, bytes)
        self.send(chain, registry, case.calldata)
        return registry

    def deploy(self, name: str, *arguments: object) -> Deployed:
        """Deploy a contract to ask, on the chain with the rules before EIP-7623."""
        return Deployed(self._chains[1][0], name, *arguments)

    def ask(self, name: str, contract: Deployed, function: str, *arguments: object) -> Result:
        """Measure the gas of a view, without the gas of calling its contract."""
        data = contract.calldata(function, *arguments)
        used, _ = self.send(contract.chain, contract, data)
        return Result(name, used - OSAKA.before_execution(contract.address, data), used, len(data), 0)

    def show(self, case: Case, name: str, function: str, *arguments: object) -> Result:
        """Measure a transaction that shows the reader a proof under roots that are facts: of the case's first account,
        or of what the case has without accounts.
        """
        facts, named = list(case.before), list[str]()
        if case.accounts:
            account, root = case.accounts[0], rlp.decode(case.header)[3]
            facts = [packed.encode(case.header, root, [replace(account, fields=packed.STORAGE_ROOT, slots={})])]
            named = [hex_data(account.address)]
        sent = []
        for chain, source in self._chains:
            registry = self._registry(chain, source, case)
            for fact in facts:
                self.send(chain, registry, fact)
            reader = Deployed(chain, "FactsReader", [registry.address])
            data = reader.calldata(function, chain.chain_id, case.number, *named, *arguments)
            used, after = self.send(chain, reader, data, geth=self._geth)
            sent.append((used, data, after))
        return result_of(name, *sent)

    def _gas(self, chain: DevChain, source: str, case: Case) -> tuple[int, bytes, int]:
        """Return the used gas, the transaction's calldata, and its gas after Amsterdam."""
        registry = self._registry(chain, source, case)
        for earlier in case.before:
            self.send(chain, registry, earlier)
        to, data = registry, case.calldata
        if not isinstance(data, bytes):
            to = Deployed(chain, "Multicall")
            data = to.calldata("run", [(registry.address, each) for each in data])
        used, after = self.send(chain, to, data, geth=self._geth)
        return used, data, after

    @staticmethod
    def _registry(chain: DevChain, source: str, case: Case) -> Deployed:
        for number, block_hash in ((case.number, case.block_hash), *case.others):
            chain.rpc("anvil_setStorageAt", HISTORY, f"0x{number % WINDOW:064x}", hex_data(block_hash))
        beacon = NO_CONTRACT
        if case.beacon:
            beacon = Deployed(chain, "GloasBeaconHistory", replace(case.beacon, id=chain.chain_id).arguments).address
        return Deployed(chain, "FactsRegistry", chain.chain_id, source, WINDOW, beacon)

    def vote(self, name: str, case: Case, contract: str, ballots: Mapping[bytes, Sequence[object]]) -> Result:
        """Return the mean of the voters' transactions after the first one, which creates the slot of the sum.

        `ballots` has each voter's arguments. The case's account is the token, and `before` makes the facts.
        """
        [token] = case.accounts
        sent: list[list[tuple[int, bytes, int]]] = []
        for chain, source in self._chains:
            registry = self._registry(chain, source, case)
            for fact in case.before:
                self.send(chain, registry, fact)
            # Stored slots are read from the registry, and proofs are shown to the reader.
            facts = Deployed(chain, "FactsReader", [registry.address]) if contract == _BY_PROOF else registry
            arguments = facts.address, chain.chain_id, hex_data(token.address), _BALANCES_SLOT, case.number
            vote = Deployed(chain, contract, *arguments, artifact=vote_contracts()[contract])
            chain.rpc("anvil_autoImpersonateAccount", True)
            votes = []
            for voter, ballot in ballots.items():
                chain.rpc("anvil_setBalance", hex_data(voter), hex(10**18))
                data = vote.calldata("vote", *ballot)
                used, after = self.send(chain, vote, data, sender=hex_data(voter), geth=self._geth)
                votes.append((used, data, after))
            sent.append(votes[1:])
        results = [result_of(name, *pair) for pair in zip(*sent, strict=True)]
        return mean(name, results, heads=len(results))

    @staticmethod
    def send(
        chain: DevChain, to: Deployed, data: bytes, *, sender: str = SENDER, geth: Geth | None = None
    ) -> tuple[int, int]:
        """Send a transaction. Return the used gas, and the gas after Amsterdam, which is zero without geth."""
        transaction = {"from": sender, "to": to.address, "data": hex_data(data), "gas": _GAS}
        receipt = chain.rpc("eth_sendTransactionSync", transaction)
        if receipt["status"] != "0x1":
            raise SystemExit("The registry refused a proof.")
        after = gas_after_amsterdam(geth, chain, transaction, receipt) if geth else 0
        return int(receipt["gasUsed"], 16), after


def gas_after_amsterdam(geth: Geth, chain: DevChain, transaction: Mapping[str, str], receipt: Mapping[str, Any]) -> int:
    """Run a mined transaction on geth, with the state before it. Return the used gas."""
    before = chain.rpc("debug_traceTransaction", receipt["transactionHash"], {"tracer": "prestateTracer"})
    states = {
        address: {
            "balance": state.get("balance", "0x0"),
            "nonce": hex(state.get("nonce", 0)),
            "code": state.get("code", "0x"),
            "state": state.get("storage", {}),
        }
        for address, state in before.items()
        if int(address, 16) >= _AFTER_PRECOMPILES
    }
    block = chain.rpc("eth_getBlockByNumber", receipt["blockNumber"], False)
    how = {
        "tracer": "callTracer",
        "tracerConfig": {"onlyTopCall": True},
        "stateOverrides": states,
        "blockOverrides": {"number": block["number"], "time": block["timestamp"]},
    }
    run = geth.rpc("debug_traceCall", {**transaction, "gas": _AMSTERDAM_GAS}, "latest", how)
    if run.get("error"):
        raise SystemExit(f"geth doesn't run a transaction: {run['error']}")
    return int(run["gasUsed"], 16)


def result_of(
    name: str, today: tuple[int, bytes, int], before_prague: tuple[int, bytes, int], *, heads: int = 1
) -> Result:
    """Return the figures of one transaction.

    Each argument has the used gas, the calldata and the gas after Amsterdam, of one of the chains.
    """
    used, data, _ = before_prague
    execution, floor = used - OSAKA.before_execution(HISTORY, data), OSAKA.least_limit(HISTORY, data)
    gas = execution // heads, today[0] // heads
    return Result(name, *gas, len(data) // heads, floor // heads, heads=heads, amsterdam=today[2] // heads)


def mean(name: str, results: Sequence[Result], *, heads: int) -> Result:
    """Return the figures of transactions for each of `heads`."""
    figures = zip(
        *((each.exec, each.tx, each.calldata_bytes, each.floor, each.amsterdam) for each in results), strict=True
    )
    execution, paid, size, floor, later = (sum(each) // heads for each in figures)
    return Result(name, execution, paid, size, floor, heads, later)


# --- Recorded cases ---------------------------------------------------------------------------------------------------


def account_of(fixture: Mapping[str, Any], fields: int = _BALANCE, *, slots: bool = True) -> AccountToProve:
    account = fixture["account"]
    nodes = [unhex(node) for node in account["proof"]]
    slot_proofs = {int(slot["slot"], 16): [unhex(node) for node in slot["proof"]] for slot in fixture["storage"]}
    return AccountToProve(unhex(account["address"]), fields, nodes, slot_proofs if slots else {})


def recorded(name: str, fixtures: Sequence[Mapping[str, Any]], *, known: bool = False, slots: bool = True) -> Case:
    """Return a transaction that proves the accounts of all fixtures. All fixtures are of the same block."""
    first = fixtures[0]
    header, root = unhex(first["headerRlp"]), unhex(first["stateRoot"])
    number = int(first["blockNumber"])
    accounts = [account_of(fixture, slots=slots) for fixture in fixtures if "account" in fixture]
    return Case(
        name,
        number,
        unhex(first["blockHash"]),
        packed.encode(number if known else header, root, accounts),
        before=[packed.encode(header, root)] if known else [],
        heads=max(1, len(accounts)),
        header=header,
        accounts=accounts,
    )


def recorded_cases() -> Iterator[Case]:
    """Yield the recorded cases. Yield nothing if there are no recordings."""
    if not FOLDER.is_dir():
        return
    names = ("690b9a9e_depth9", "00000000_depth9", "388c818c_depth8", "ade2a9c8_depth8")
    mainnet = [json.loads((FOLDER / f"mainnet_17463226_{name}.json").read_text()) for name in names]
    yield recorded("one mainnet balance, 9 nodes", mainnet[:1])
    yield recorded("the same block again, another account", mainnet[1:2], known=True)
    yield recorded("four accounts of that block, each", mainnet)
    absent, slot = (
        json.loads((FOLDER / f"goerli_7583802_{name}.json").read_text())
        for name in ("456cb24d_depth7", "7b2f05ce_depth7")
    )
    yield recorded("absent account, 7 nodes", [absent])
    yield recorded("account, 7 nodes", [slot], slots=False)
    yield recorded("account, 7 nodes, and one slot, 5 nodes", [slot])


# --- Generated cases --------------------------------------------------------------------------------------------------


def header_of(state_root: bytes, number: int = _BLOCK) -> bytes:
    """Return a header of mainnet's usual size, with random hashes."""
    chance = random.Random(_SEED)
    word = chance.randbytes
    fields: list[bytes | int] = [word(32), word(32), word(20), state_root, word(32), word(32), word(256), 0, number]
    fields += [30_000_000, 15_000_000, 1_686_500_000, word(20), word(32), bytes(8), 20_000_000_000, word(32)]
    return tries.encode(fields)


def generated(
    name: str,
    count: int,
    *,
    slots: int = 0,
    slot_levels: Sequence[int] = (16, 2),
    contract: bool = False,
    number: int = _BLOCK,
) -> Case:
    """Return a transaction that proves `count` mainnet-shaped accounts' balances, and slots of the first account."""
    chance = random.Random(_SEED)
    addresses = [chance.randbytes(20) for _ in range(count)]
    storage_root, slot_proofs = tries.EMPTY_ROOT, {}
    if slots or contract:
        keys = {slot: keccak(slot.to_bytes(32)) for slot in range(0x41, 0x41 + max(1, slots))}
        values = {key: tries.encode(chance.randbytes(32)) for key in keys.values()}
        storage_root, proofs = tries.shaped(values, chance, slot_levels)
        slot_proofs = {slot: proofs[key] for slot, key in keys.items()} if slots else {}
    leaves = {}
    for place, address in enumerate(addresses):
        nonce, balance = chance.randrange(1, 2**16), chance.randrange(2**56, 2**64)
        code = chance.randbytes(32) if place == 0 and (slots or contract) else tries.EMPTY_CODE_HASH
        root = storage_root if place == 0 else tries.EMPTY_ROOT
        leaves[keccak(address)] = tries.account(nonce, balance, root, code)
    state_root, proofs = tries.shaped(leaves, chance)
    accounts = [
        AccountToProve(address, _BALANCE, proofs[keccak(address)], slot_proofs if place == 0 else {})
        for place, address in enumerate(addresses)
    ]
    header = header_of(state_root, number)
    data = packed.encode(header, state_root, accounts)
    return Case(name, number, keccak(header), data, heads=count, header=header, accounts=accounts)


def blocks_together(count: int) -> Case:
    """Return a transaction that proves one account's balance at each of `count` blocks."""
    newest, *others = (generated("", 1, number=_BLOCK - place) for place in range(count))
    return Case(
        f"{count} blocks with one generated account, each",
        newest.number,
        newest.block_hash,
        [case.calldata for case in (newest, *others) if isinstance(case.calldata, bytes)],
        heads=count,
        others=[(case.number, case.block_hash) for case in others],
    )


def generated_cases() -> Iterator[Case]:
    yield generated("one generated account", 1)
    yield blocks_together(4)
    yield blocks_together(16)
    yield generated("16 mainnet-shaped accounts, each", 16)
    yield generated("32 mainnet-shaped accounts, each", 32)
    yield generated("contract account", 1, contract=True)
    yield generated("contract account and one slot, 3 nodes", 1, slots=1)
    yield generated("contract account and four slots, 3 nodes", 1, slots=4)
    yield generated("contract account and four slots, 5 nodes", 1, slots=4, slot_levels=(16, 16, 9, 2))
    root = bytes(range(1, 33))
    header = header_of(root)
    yield Case("header alone", _BLOCK, keccak(header), packed.encode(header, root))
    places = sorted(set(range(17)) - packed.IMPLIED_HEADER_FIELDS)
    yield Case(
        "header and all of its fields", _BLOCK, keccak(header), packed.encode(header, root, header_fields=places)
    )


# --- Receipts ---------------------------------------------------------------------------------------------------------

# Transactions of a usual mainnet block, and the index of the proven one: three nodes, as for most.
_TRANSACTIONS, _INDEX = 202, 100
_LOG_COUNTS = (1, 5, 40)
_RECEIPTS_ROOT, _WITHDRAWALS_ROOT = 5, 16


def receipts_of(count: int) -> tuple[Sequence[bytes], bytes]:
    """Return a block's receipts and header. One receipt has so many logs: transfers of tokens, with 3 topics."""
    chance = random.Random(_SEED)
    logs = [
        (chance.randbytes(20), [chance.randbytes(32), *(bytes(12) + chance.randbytes(20) for _ in "ab")], data)
        for data in (bytes(24) + chance.randbytes(8) for _ in range(count))
    ]
    # The others only give their hashes.
    receipts = [chance.randbytes(300) for _ in range(_TRANSACTIONS)]
    receipts[_INDEX] = Outcome(1, 2, 9_000_000, logs).encode()
    fields = list(rlp.decode(prague_header(_BLOCK, chance.randbytes(32), chance.randbytes(32), chance)))
    fields[_RECEIPTS_ROOT] = packed_entries.root(receipts)
    return receipts, tries.encode(fields)


def receipt_cases() -> Iterator[Case]:
    """Yield proofs of a log in receipts of several sizes."""
    for count in _LOG_COUNTS:
        receipts, header = receipts_of(count)
        known = [packed.encode(header, b"", header_fields=[_RECEIPTS_ROOT])]
        stored = {"a log": [0], "all logs": range(count)} if count > 1 else {"its log": [0]}
        for what, wanted in stored.items():
            for how, block, before in (("root known", _BLOCK, known), ("with header", header, ())):
                data = packed_entries.encode_receipts(block, receipts, {_INDEX: wanted})
                name = f"receipt of {count} logs: {what}, {how}".replace("1 logs", "1 log")
                yield Case(name, _BLOCK, keccak(header), data, before=before)


# --- Older blocks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A header with Prague's fields, and the proof of an older block's hash in its state."""

    number: int
    header: bytes
    root: bytes
    history: Sequence[AccountToProve] = ()

    @property
    def hash(self) -> bytes:
        return keccak(self.header)


def prague_header(
    number: int, state_root: bytes, parent_hash: bytes, chance: random.Random, *, beacon_root: bytes = b""
) -> bytes:
    """Make a header of mainnet's usual size, 649 bytes."""
    word = chance.randbytes
    fields: list[bytes | int] = [parent_hash, word(32), word(20), state_root, word(32), word(32), word(256), 0, number]
    fields += [60_000_000, 30_000_000, 1_780_000_000, word(24), word(32), bytes(8), 500_000_000, word(32)]
    return tries.encode([*fields, 0x060000, 0x0B000000, beacon_root or word(32), word(32)])


def hops(count: int) -> list[Block]:
    """Return blocks from newest to oldest, one hop apart.

    Each is the oldest block in the history of the next newer block. The history contract's storage is the real trie of
    a full ring. Its account is as deep as a mainnet account.
    """
    chance = random.Random(_SEED)
    ring = tries.build({keccak(slot.to_bytes(32)): tries.encode(chance.randrange(1, 2**256)) for slot in range(WINDOW)})
    number = _BLOCK - count * WINDOW
    root = chance.randbytes(32)
    blocks = [Block(number, prague_header(number, root, chance.randbytes(32), chance), root)]
    key, slot = keccak(packed.HISTORY_ADDRESS), number % WINDOW
    for _ in range(count):
        slot_key = keccak(slot.to_bytes(32))
        ring[slot_key] = tries.encode(int.from_bytes(blocks[0].hash))
        account = tries.account(1, 0, ring.root_hash, chance.randbytes(32))
        root, proofs = tries.shaped({key: account}, chance)
        history = AccountToProve(packed.HISTORY_ADDRESS, 0, proofs[key], {}, {slot: tries.proof(ring, slot_key)})
        number += WINDOW
        header = prague_header(number, root, chance.randbytes(32), chance)
        blocks.insert(0, Block(number, header, root, [history]))
    return blocks


def hop_cases() -> Iterator[Case]:
    newest, *others = hops(10)
    accumulate = packed.encode(newest.header, newest.root)
    hop = packed.encode(newest.number, newest.root, newest.history)
    land = packed.encode(others[0].header, others[0].root)
    start = newest.number, newest.hash
    yield Case("one hop: an older block's hash", *start, hop, before=[accumulate])
    yield Case("one hop: and its header", *start, land, before=[accumulate, hop])
    yield Case("one hop: both in one Multicall", *start, [hop, land], before=[accumulate])
    calls = [hop, *(packed.encode(block.header, block.root, block.history) for block in others)]
    yield Case("ten hops in one Multicall", *start, calls, before=[accumulate])


# --- Jumps to older blocks --------------------------------------------------------------------------------------------

# Mainnet in October 2026: the number of complete periods since Capella, and a slot after them.
_SUMMARIES, _ANCHOR_SLOT = 1113, 15_330_000
_TARGET_SLOT, _ELECTRA_SLOT = 9_000_000, 12_000_000
# The generalized index of the proven hash in a body of Gloas.
_PARENT_BLOCK_HASH = 2856


def jump(
    slot: int, beacon: BeaconChain = jumps.MAINNET, *, by_roots: bool = False
) -> tuple[list[bytes | BlockBranch], bytes, bytes, BeaconChain]:
    """Make the beacon proof of a block, the block's header and state root, and the chain.

    Branches are as long as mainnet's, with random siblings. The proof of a block before Capella starts at a constant.
    `by_roots`: it leads through the last block roots in a state.
    """
    chance = random.Random(_SEED)

    def some(count: int) -> list[bytes]:
        return [chance.randbytes(32) for _ in range(count)]

    root = chance.randbytes(32)
    header = prague_header(_BLOCK - 5_000_000, root, chance.randbytes(32), chance)
    block = beacon_block(slot, beacon, header, chance)
    roots = some(1 << beacon.period_depth)
    roots[beacon.place(slot)] = block.header.root
    roots_root = ssz.tree_root(roots, beacon.period_depth)
    if slot < beacon.capella:
        periods = some(beacon.periods_before_capella)
        state_roots_root = chance.randbytes(32)
        periods[beacon.period(slot)] = ssz.merge(roots_root, state_roots_root)
        beacon = replace(beacon, historical_roots=ssz.list_root(periods, jumps.HISTORY_DEPTH))
        branch = BlockBranch(
            BLOCK_BEFORE_CAPELLA, jumps.before_capella(beacon, block, roots, state_roots_root, periods)
        )
        return [branch], header, root, beacon
    if by_roots:
        anchor, siblings = anchor_of(beacon, jumps.BLOCK_ROOTS, roots_root, chance)
        branch = BlockBranch(OLD_BLOCK, jumps.recent(beacon, block, roots, anchor, siblings), by_roots=True)
    else:
        summaries = [(chance.randbytes(32), chance.randbytes(32)) for _ in range(_SUMMARIES)]
        index = beacon.period(slot) - beacon.periods_before_capella
        summaries[index] = roots_root, summaries[index][1]
        summaries_root = ssz.list_root([ssz.merge(*each) for each in summaries], jumps.HISTORY_DEPTH)
        anchor, siblings = anchor_of(beacon, jumps.HISTORICAL_SUMMARIES, summaries_root, chance)
        branch = BlockBranch(OLD_BLOCK, jumps.old(beacon, block, roots, Anchor(anchor, summaries, siblings)))
    newest = prague_header(_BLOCK, chance.randbytes(32), chance.randbytes(32), chance, beacon_root=anchor.root)
    return [newest, branch], header, root, beacon


def beacon_block(slot: int, beacon: BeaconChain, header: bytes, chance: random.Random) -> ExecutionBranch:
    """Make a beacon block that proves an execution block, with random siblings."""
    index, depth = _PARENT_BLOCK_HASH, _PARENT_BLOCK_HASH.bit_length() - 1
    if slot < beacon.gloas:
        index = EXECUTION_PAYLOAD << (payload := beacon.payload_depth(slot)) | BLOCK_HASH
        depth = payload + BODY_DEPTH
    branch = [chance.randbytes(32) for _ in range(depth)]
    if slot >= beacon.gloas:
        branch[1], branch[-1] = ssz.integer_leaf((1 << 12) - 1), ssz.integer_leaf((1 << 13) - 1)
    body_root = ssz.climb(keccak(header), branch, index)
    beacon_header = BeaconHeader(slot, 400_000, chance.randbytes(32), chance.randbytes(32), body_root)
    return ExecutionBranch(beacon_header, keccak(header), branch)


def anchor_of(beacon: BeaconChain, field: int, root: bytes, chance: random.Random) -> tuple[BeaconHeader, list[bytes]]:
    """Make a beacon block whose state has a root in a field, and the siblings up to the state's root."""
    index = beacon.state_index(_ANCHOR_SLOT, field)
    siblings = [chance.randbytes(32) for _ in range(index.bit_length() - 1)]
    if beacon.gloas <= _ANCHOR_SLOT:
        siblings[-1] = ssz.integer_leaf((1 << 46) - 1)
    state_root = ssz.climb(root, siblings, index)
    return BeaconHeader(_ANCHOR_SLOT, 1_500_000, chance.randbytes(32), state_root, chance.randbytes(32)), siblings


def measure_branches(geth: Geth | None = None) -> Iterator[Result]:
    """Yield the gas of a transaction that only proves a branch: by the earlier beacon history, and by the current one.

    Gloas begins before the target, between target and anchor, or never.
    """
    chance = random.Random(_SEED)
    header = prague_header(_BLOCK, chance.randbytes(32), chance.randbytes(32), chance)
    since, between = (replace(jumps.MAINNET, gloas=slot) for slot in (_ELECTRA_SLOT, _ANCHOR_SLOT))
    contracts = {"BeaconHistory": jumps.MAINNET.arguments_without_gloas, "GloasBeaconHistory": None}
    kinds = (
        ("own, Fulu", jumps.MAINNET, "own"),
        ("own, Gloas", since, "own"),
        ("old, Fulu by a state of Fulu", jumps.MAINNET, "old"),
        ("old, Fulu by a state of Gloas", between, "old"),
        ("old, Gloas by a state of Gloas", since, "old"),
        ("by block_roots, Gloas", since, "recent"),
    )
    with ExitStack() as stack:
        chains = [stack.enter_context(DevChain(hardfork=hardfork)) for hardfork in (None, "cancun")]
        for name, beacon, kind in kinds:
            root, branch = _branch(kind, beacon, beacon_block(_ELECTRA_SLOT, beacon, header, chance), chance)
            for contract, arguments in contracts.items():
                if contract == "BeaconHistory" and beacon != jumps.MAINNET:
                    continue
                sent = []
                for chain in chains:
                    history = Deployed(chain, contract, arguments or beacon.arguments)
                    function = "ownBlockHash" if kind == "own" else "oldBlockHash"
                    data = history.calldata(function, root, branch)
                    used, after = Lab.send(chain, history, data, geth=geth)
                    sent.append((used, data, after))
                yield result_of(f"{name}: {contract}", *sent)


# Kinds of branches, others to compare them with, and the maximum gas over these: of the execution, and of the calldata
# as if no byte was zero. Branches are sent with headers, so the floor decides for none.
BRANCH_BUDGETS = (
    ("own, Gloas: GloasBeaconHistory", "own, Fulu: BeaconHistory", 1_700),
    ("old, Gloas by a state of Gloas: GloasBeaconHistory", "old, Fulu by a state of Fulu: BeaconHistory", 5_800),
    ("by block_roots, Gloas: GloasBeaconHistory", "own, Gloas: GloasBeaconHistory", 22_500),
)


def gas_over(results: Sequence[Result]) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield the pairs of BRANCH_BUDGETS, the gas of the first over the second, its maximum, and Amsterdam's floor."""
    by_case = {result.case: result for result in results}
    for name, other, most in BRANCH_BUDGETS:
        execution, size = (
            getattr(by_case[name], figure) - getattr(by_case[other], figure) for figure in ("exec", "calldata_bytes")
        )
        yield name, other, execution + gas_of_calldata(0, size), most, AMSTERDAM.floor_byte * size


def show_branches(results: Sequence[Result]) -> None:
    """Print how much more gas the branches of Gloas take."""
    print(f"\n{'branch':<56} {'gas over':>9} {'most':>9} {'floor':>9} than")
    for name, other, gas, most, floor in gas_over(results):
        print(f"{name:<56} {gas:>9,} {most:>9,} {floor:>9,} {other}")
    print("The floor is Amsterdam's, for the bytes that a branch has more.")


def _branch(kind: str, beacon: BeaconChain, block: ExecutionBranch, chance: random.Random) -> tuple[bytes, bytes]:
    """Return the trusted root and the branch of a kind. A state has as many summaries as mainnet's."""
    if kind == "own":
        return block.header.root, jumps.own(block)
    roots = [chance.randbytes(32) for _ in range(1 << beacon.period_depth)]
    roots[beacon.place(block.header.slot)] = block.header.root
    root = ssz.tree_root(roots, beacon.period_depth)
    if kind == "recent":
        anchor, siblings = anchor_of(beacon, jumps.BLOCK_ROOTS, root, chance)
        return anchor.root, jumps.recent(beacon, block, roots, anchor, siblings)
    summaries = [(chance.randbytes(32), chance.randbytes(32)) for _ in range(_SUMMARIES)]
    index = beacon.period(block.header.slot) - beacon.periods_before_capella
    summaries[index] = root, summaries[index][1]
    listed = ssz.list_root([ssz.merge(*each) for each in summaries], jumps.HISTORY_DEPTH)
    anchor, siblings = anchor_of(beacon, jumps.HISTORICAL_SUMMARIES, listed, chance)
    return anchor.root, jumps.old(beacon, block, roots, Anchor(anchor, summaries, siblings))


def jump_before_merge() -> tuple[list[bytes | BlockBranch], bytes, bytes, BeaconChain]:
    """Return the result of `jump` for a block before the Merge."""
    chance = random.Random(_SEED)
    root, number = chance.randbytes(32), 10_000_000
    header = tries.header(number, root, chance.randbytes(32), chance.randbytes(20))
    records = [(chance.randbytes(32), chance.randrange(2**76)) for _ in range(8192)]
    records[number % 8192] = keccak(header), records[0][1]
    epochs = [chance.randbytes(32) for _ in range(1897)]
    epochs[number // 8192] = ssz.list_root(jumps.record_leaves(records), jumps.RECORDS_DEPTH)
    beacon = replace(jumps.MAINNET, accumulator=ssz.list_root(epochs, jumps.EPOCHS_DEPTH))
    branch = BlockBranch(BLOCK_BEFORE_MERGE, jumps.before_merge(beacon, number, records, epochs))
    return [branch], header, root, beacon


def jump_cases() -> Iterator[Case]:
    for name, (start, header, root, beacon) in (
        ("since Capella", jump(_TARGET_SLOT)),
        ("by block roots", jump(_TARGET_SLOT, by_roots=True)),
        ("Merge to Capella", jump(6_000_000)),
        ("before the Merge", jump_before_merge()),
    ):
        above = start[0] if isinstance(start[0], bytes) else b""
        for what, data in (
            ("hash", packed.encode_block_hash(start)),
            ("header, no hash kept", packed.encode([*start, header], root)),
        ):
            yield Case(f"jump {name}: {what}", _BLOCK, keccak(above), data, beacon=beacon)
        if above:
            calls = [packed.encode_block_hash(start), packed.encode(header, root)]
            yield Case(f"jump {name}: hash, then header", _BLOCK, keccak(above), calls, beacon=beacon)


# Ages of blocks, in blocks of 12 seconds, and the kinds of jump that reach them on mainnet. Hops don't reach blocks
# from before Prague, which introduced the history contract.
_AGES = (
    ("1 day", 7_200, "by block roots"),
    ("60 days", 60 * 7_200, "since Capella"),
    ("1 year", 365 * 7_200, "since Capella"),
    ("3 years", 0, "since Capella"),
    ("before Capella", 0, "Merge to Capella"),
    ("block 1,000,001", 0, "before the Merge"),
)


def show_ages(results: Sequence[Result]) -> None:
    """Print the gas of hops and of a jump to a block by its age, including the header.

    Many hops are computed from the measured gas of ten.
    """
    by_case = {result.case: result for result in results}
    hop, ten = (by_case[f"{count} in one Multicall"] for count in ("one hop: both", "ten hops"))

    def hops_to(blocks: int) -> tuple[int, ...]:
        count = -(-blocks // WINDOW)
        figures = ((each.tx, each.amsterdam, each.calldata_bytes) for each in (hop, ten))
        return count, *(first + (count - 1) * (last - first) // 9 for first, last in zip(*figures, strict=True))

    titles = ("hops", "gas", "amsterdam", "bytes", "jump: gas", "amsterdam", "bytes")
    print("\n" + " ".join([f"{'age of the block':<16}", *(f"{title:>12}" for title in titles)]))
    for age, blocks, jump_name in _AGES:
        by_jump = by_case.get(f"jump {jump_name}: header, no hash kept")
        figures = [
            *(hops_to(blocks) if blocks else [None] * 4),
            *((by_jump.tx, by_jump.amsterdam, by_jump.calldata_bytes) if by_jump else [None] * 3),
        ]
        print(" ".join([f"{age:<16}", *(f"{'-' if each is None else f'{each:,}':>12}" for each in figures)]))


# --- Block hash sources -----------------------------------------------------------------------------------------------

# A slot of the small beacon chain, after Electra.
_SLOT = 70
_ATTESTERS = [Account.from_key(f"0x{number:064x}") for number in (1, 2)]
# Makes the call that records a block's hash, from the block's number and header.
Recording = Callable[[int, bytes], bytes]


def attested(chain: DevChain) -> tuple[Deployed, Recording]:
    attesters = sorted(_ATTESTERS, key=lambda attester: attester.address.lower())
    source = Deployed(
        chain, "AttestedBlockHashSource", ROLLUP, [attester.address for attester in attesters], len(attesters)
    )

    def record(number: int, header: bytes) -> bytes:
        question = AttestationRequest(Domain(chain.chain_id, source.address), ROLLUP, number)
        signatures = b"".join(sign(attester, question.message(keccak(header))) for attester in attesters)
        return source.calldata("attest", number, keccak(header), signatures)

    return source, record


def beacon_roots(chain: DevChain) -> tuple[Deployed, Recording]:
    roots = BeaconRoots(chain)
    source = Deployed(chain, "GloasBeaconBlockHashSource", replace(SMALL, id=ROLLUP).arguments)

    def record(number: int, header: bytes) -> bytes:
        world = BeaconWorld(random.Random(number), hashes={_SLOT: keccak(header)})
        roots.tell(number, world.root(_SLOT))
        return source.calldata("record", number, jumps.own(world.blocks[_SLOT]), header)

    return source, record


_SOURCES: Mapping[str, Callable[[DevChain], tuple[Deployed, Recording]]] = {
    "attested, two signatures": attested,
    "arbitrum": rollup_sources.arbitrum,
    "arbitrum-slot, beside the slot": rollup_sources.arbitrum_slot,
    "op-stack-games": rollup_sources.op_stack_games,
    "beacon-roots": beacon_roots,
}


def rollup_header(number: int) -> bytes:
    """Make a header of mainnet's usual size whose extra data is a send root."""
    chance = random.Random(number)
    fields = list(rlp.decode(prague_header(number, chance.randbytes(32), chance.randbytes(32), chance)))
    fields[EXTRA_DATA] = chance.randbytes(32)
    return tries.encode(fields)


def measure_sources(geth: Geth | None = None) -> Iterator[Result]:
    """Yield the gas that each block hash source takes to record a block, if it has recorded another block before."""
    with ExitStack() as stack:
        chains = [stack.enter_context(DevChain(hardfork=hardfork)) for hardfork in (None, "cancun")]
        for chain in chains:
            chain.rpc("anvil_setBlockTimestampInterval", 1)
        for name, deploy in _SOURCES.items():
            sent = []
            for chain in chains:
                source, record = deploy(chain)
                Lab.send(chain, source, record(_BLOCK - 1, rollup_header(_BLOCK - 1)))
                data = record(_BLOCK, rollup_header(_BLOCK))
                used, after = Lab.send(chain, source, data, geth=geth)
                sent.append((used, data, after))
            yield result_of(f"hash by {name}", *sent)


# --- A vote -----------------------------------------------------------------------------------------------------------

# Holders of the token, and those who vote.
_HOLDERS, _VOTERS = 1_000, 50
_BALANCES_SLOT = 0
# Branches on the path to a balance of a token with millions of holders: 7 nodes with the leaf.
_TOKEN_TRIE = (16, 16, 16, 16, 9, 2)
# Slots in a transaction. The service packs 110,000 bytes at most (`proving.packing.packs`), counting whole nodes.
_SLOTS_TOGETHER = 90
_SOLIDITY = PROJECT / "client" / "solidity"
_BY_SLOT, _BY_PROOF = "SnapshotVote", "SnapshotVoteByProof"


@cache
def vote_contracts() -> Mapping[str, Artifact]:
    """Compile the votes among the Solidity library's examples. Return each contract by its name."""
    texts = {path.relative_to(_SOLIDITY).as_posix(): path.read_text() for path in _SOLIDITY.rglob("*.sol")}
    code = ["abi", "evm.bytecode.object"]
    output = run_compiler(texts, {f"examples/{name}.sol": {name: code} for name in (_BY_SLOT, _BY_PROOF)})
    contracts = {name: output["contracts"][f"examples/{name}.sol"][name] for name in (_BY_SLOT, _BY_PROOF)}
    return {
        name: Artifact(contract["abi"], bytes.fromhex(contract["evm"]["bytecode"]["object"]), b"", {})
        for name, contract in contracts.items()
    }


def token_of(holders: Sequence[bytes]) -> Case:
    """Return a case of a token with the slots of these holders.

    Its header and account are recorded of a mainnet contract, or generated where there are no recordings. Only the
    storage root is another one, and so are the hashes above it. Siblings in the storage trie are random.
    """
    chance = random.Random(_SEED)
    slots = [int.from_bytes(keccak(bytes(12) + holder + _BALANCES_SLOT.to_bytes(32))) for holder in holders]
    keys = {slot: keccak(slot.to_bytes(32)) for slot in slots}
    balances = {key: tries.encode(chance.randrange(10**17, 10**24)) for key in keys.values()}
    root, proofs = tries.shaped(balances, chance, _TOKEN_TRIE)
    case = generated("", 1, contract=True)
    if FOLDER.is_dir():
        case = recorded("", [json.loads((FOLDER / f"mainnet_{_BLOCK}_ade2a9c8_depth8.json").read_text())])
    [account] = case.accounts
    former, nodes = rlp.decode(rlp.decode(account.nodes[-1])[1])[2], list[bytes]()
    for node in reversed([case.header, *account.nodes]):
        nodes.insert(0, node.replace(former, root))
        former, root = keccak(node), keccak(nodes[0])
    token = replace(account, fields=0, nodes=nodes[1:], slots={slot: proofs[key] for slot, key in keys.items()})
    return replace(case, header=nodes[0], block_hash=root, accounts=[token])


def measure_votes(geth: Geth | None = None) -> Iterator[Result]:
    """Yield the gas of a vote by balances: of the facts before it, and of a holder's transaction."""
    chance = random.Random(_SEED)
    holders = [chance.randbytes(20) for _ in range(_HOLDERS)]
    case = token_of(holders)
    [token] = case.accounts
    state_root = rlp.decode(case.header)[3]
    # Neighbours in the trie share nodes.
    slots = sorted(token.slots.items(), key=lambda slot: keccak(slot[0].to_bytes(32)))
    stored = [
        packed.encode(
            case.number if first else case.header,
            state_root,
            [replace(token, slots=dict(slots[first : first + _SLOTS_TOGETHER]))],
        )
        for first in range(0, _HOLDERS, _SLOTS_TOGETHER)
    ]
    root = packed.encode(case.header, state_root, [replace(token, fields=packed.STORAGE_ROOT, slots={})])
    proofs = dict(zip(holders, map(tries.encode, token.slots.values()), strict=True))
    voters = holders[:_VOTERS]
    with Lab(case.number, geth) as lab:
        parts = [
            lab.run(replace(case, calldata=data, before=stored[:1] if place else ()))
            for place, data in enumerate(stored)
        ]
        yield mean(f"a slot stored, of {_HOLDERS:,} in {len(parts)} transactions", parts, heads=_HOLDERS)
        by_slot = {voter: [True] for voter in voters}
        yield lab.vote("a vote by a stored slot", replace(case, before=stored), _BY_SLOT, by_slot)
        yield lab.run(replace(case, name="the token's storage root, with header", calldata=root))
        by_proof = {voter: [True, proofs[voter]] for voter in voters}
        yield lab.vote("a vote by a shown slot", replace(case, before=[root]), _BY_PROOF, by_proof)


# --- Messages of other chains -----------------------------------------------------------------------------------------

# Gas of the reference implementation of ERC-7888, as it publishes it (2026-02): transactions of one message each.
# Its provers walk through tries in memory, and its messages come over other hops than ours.
PUBLISHED_MESSAGES = {
    "reference, Taiko to L1": 1_022_329,
    "reference, L1 to Taiko": 1_052_266,
    "reference, Scroll to L1": 1_361_992,
    "reference, L1 to OP": 1_642_699,
}


class Hop:
    """A receiver on a chain, a registry of Sepolia there, and pointers to provers over it."""

    def __init__(self, chain: DevChain, geth: Geth | None) -> None:
        self._chain, self._geth = chain, geth
        self._source = Deployed(chain, "test/SettableBlockHashSource", _SEPOLIA)
        self._registry = Deployed(chain, "FactsRegistry", _SEPOLIA, self._source.address, WINDOW, NO_CONTRACT)
        self._receiver = Deployed(chain, "test/Receiver")
        self._recorded = state_provers.payload("message-sepolia-9496454")
        self._message = unhex(self._recorded.details["message"]), self._recorded.details["publisher"]
        self._pointers = {
            kind: state_provers.pointer(state_provers.prover(chain, chain.chain_id, self._registry.address, kind))
            for kind in state_provers.KINDS
        }

    def arguments(self, kind: state_provers.Kind, number: int, shown: ShownSlot) -> state_provers.ReadArguments:
        """Return how the receiver reads a slot, of a block that the registry gets to know."""
        self._source.send("set", number, shown.block_hash)
        Lab.send(self._chain, self._registry, packed.encode(shown.header, b""))
        types, values = (
            (["uint256"], [number]) if kind == "ROOT" else (["uint256", "bytes32"], [number, shown.block_hash])
        )
        return [self._pointers[kind].address], [encode(types, values)], shown.slot_input(kind)

    def message(self, kind: state_provers.Kind) -> tuple[int, bytes, int]:
        """Take a message that was broadcast on Sepolia."""
        arguments = self.arguments(kind, self._recorded.number, self._recorded.shown)
        return self._sent("verifyBroadcastMessage", arguments, *self._message)

    def copy(self) -> tuple[int, bytes, int]:
        """Take a copy of the prover that a pointer names, on a chain as large as mainnet."""
        copy, of_pointer, _ = self._beyond()
        return self._sent("updateStateProverCopy", self.arguments("ROOT", _BLOCK, of_pointer), copy.address)

    def message_beyond(self) -> tuple[int, bytes, int]:
        """Take the message over two hops, by the prover whose copy was taken."""
        _, of_pointer, of_registry = self._beyond()
        [first], [first_input], _ = self.arguments("ROOT", _BLOCK, of_pointer)
        inputs = [first_input, of_registry.target_input(self._recorded.number)]
        read = [first, of_pointer.account], inputs, self._recorded.shown.slot_input("ROOT")
        return self._sent("verifyBroadcastMessage", read, *self._message)

    def _beyond(self) -> tuple[Deployed, ShownSlot, ShownSlot]:
        """Return a copy of a prover whose home is beyond the first hop, the slot of its pointer there, and the slot in
        which its registry has the state root of the message's block.
        """
        chance = random.Random(_SEED)
        pointer, registry = chance.randbytes(20), chance.randbytes(20)
        copy = state_provers.prover(self._chain, _SEPOLIA, hex_data(registry))
        slots = {
            pointer: (state_provers.POINTER_SLOT, keccak(copy.code), (2,)),
            registry: (
                state_provers.mapping_slot(self._recorded.number, 0),
                self._recorded.shown.state_root,
                tries.MAINNET_LEVELS,
            ),
        }
        storages = {
            account: tries.shaped({keccak(slot.to_bytes(32)): tries.encode(value)}, chance, levels)
            for account, (slot, value, levels) in slots.items()
        }
        leaves = {
            keccak(account): tries.account(1, 0, root, chance.randbytes(32)) for account, (root, _) in storages.items()
        }
        root, accounts = tries.shaped(leaves, chance)
        header = header_of(root, _BLOCK)
        of_pointer, of_registry = (
            ShownSlot(header, root, hex_data(account), slot, value, accounts[keccak(account)], *nodes.values())
            for (account, (slot, value, _)), (_, nodes) in zip(slots.items(), storages.values(), strict=True)
        )
        return copy, of_pointer, of_registry

    def _sent(self, function: str, *arguments: object) -> tuple[int, bytes, int]:
        data = self._receiver.calldata(function, *arguments)
        used, after = Lab.send(self._chain, self._receiver, data, geth=self._geth)
        return used, data, after


def measure_messages(geth: Geth | None = None) -> Iterator[Result]:
    """Yield the gas of a message over one hop (ERC-7888), and of a copy of a prover for a second hop."""
    with ExitStack() as stack:
        hops = [Hop(stack.enter_context(DevChain(hardfork=hardfork)), geth) for hardfork in (None, "cancun")]
        yield result_of("a message, by a state root", *(hop.message("ROOT") for hop in hops))
        yield result_of("a message, by a block hash", *(hop.message("HASH") for hop in hops))
        yield result_of("a copy of a prover", *(hop.copy() for hop in hops))
        yield result_of("a message over two hops", *(hop.message_beyond() for hop in hops))


# --- Report -----------------------------------------------------------------------------------------------------------


def measure(cases: Sequence[Case], geth: Geth | None) -> Iterator[Result]:
    for number in dict.fromkeys(case.number for case in cases):
        with Lab(number, geth) as lab:
            for case in cases:
                if case.number == number:
                    yield lab.run(case)


def measure_reads(geth: Geth | None = None) -> Iterator[Result]:
    slot = generated("", 1, slots=1)
    address = "0x" + random.Random(_SEED).randbytes(20).hex()
    with Lab(_BLOCK, geth) as lab:
        yield lab.read(slot, "read accountField", "accountField", address, _BLOCK, 1)
        arguments = (address, _BLOCK, (0x41).to_bytes(32))
        yield lab.read(slot, "read accountStorageSlotValues", "accountStorageSlotValues", *arguments)
        _, header = receipts_of(1)
        known = packed.encode(header, b"", header_fields=[_RECEIPTS_ROOT])
        of_header = Case("", _BLOCK, keccak(header), known, before=[known])
        yield lab.read(of_header, "read headerField", "headerField", _BLOCK, _RECEIPTS_ROOT)
        yield lab.show(of_header, "read headerField by FactsReader", "headerField", _RECEIPTS_ROOT)


def measure_shown(geth: Geth | None) -> Iterator[Result]:
    """Yield the gas of slots that are stored, and of what is shown: slots, an account, receipts and logs."""
    with Lab(_BLOCK, geth) as lab:
        for levels in ((16, 16, 9, 2), (16, 16, 16, 9, 2), (16, 16, 16, 16, 9, 2)):
            nodes = len(levels) + 1
            case = generated(f"a slot stored, {nodes} nodes, block known", 1, slots=1, slot_levels=levels)
            root = rlp.decode(case.header)[3]
            alone = [replace(case.accounts[0], fields=0)]
            yield lab.run(
                replace(
                    case,
                    calldata=packed.encode(case.number, root, alone),
                    before=[packed.encode(case.header, root)],
                )
            )
            [(slot, proof)] = case.accounts[0].slots.items()
            arguments = slot.to_bytes(32), tries.encode(proof)
            yield lab.show(case, f"a slot shown, {nodes} nodes", "slotByProof", *arguments)
        nodes = len(case.accounts[0].nodes)
        yield lab.show(case, f"an account shown, {nodes} nodes", "accountByProof", tries.encode(case.accounts[0].nodes))
        for count in _LOG_COUNTS:
            receipts, header = receipts_of(count)
            receipt = tries.encode(receipt_nodes(receipt_trie(dict(enumerate(receipts))), _INDEX))
            known = [packed.encode(header, b"", header_fields=[_RECEIPTS_ROOT])]
            case = Case("", _BLOCK, keccak(header), b"", before=known)
            yield lab.show(case, f"receipt shown, logs: {count}", "receiptByProof", _INDEX, receipt)
            yield lab.show(case, f"a log shown, logs: {count}", "logByProof", _INDEX, count - 1, receipt)
        case, withdrawal = a_withdrawal()
        yield lab.show(case, "a withdrawal shown, of 16", "withdrawalByProof", *withdrawal)


def a_withdrawal() -> tuple[Case, tuple[int, bytes]]:
    """Return a block whose root of withdrawals is a fact, and the arguments that show one of sixteen recorded ones."""
    values = withdrawal_walks.values_of(withdrawal_walks.recorded(19_426_587).withdrawals)
    [walk] = withdrawal_walks.shown(values, [7])
    chance = random.Random(_SEED)
    fields = list(rlp.decode(prague_header(_BLOCK, chance.randbytes(32), chance.randbytes(32), chance)))
    fields[_WITHDRAWALS_ROOT] = walk.root
    header = tries.encode(fields)
    known = [packed.encode(header, b"", header_fields=[_WITHDRAWALS_ROOT])]
    return Case("", _BLOCK, keccak(header), b"", before=known), (walk.place, walk.proof)


def measure_several_slots(geth: Geth | None = None) -> Iterator[Result]:
    """Yield the gas of one to three slots under one root, from one proof in which each node is once."""
    case = generated("", 1, slots=3, slot_levels=(16, 16, 16, 16, 9, 2))
    [account] = case.accounts
    proofs = {slot.to_bytes(32): nodes for slot, nodes in account.slots.items()}
    root = keccak(next(iter(proofs.values()))[0])
    with ExitStack() as stack:
        chains = [stack.enter_context(DevChain(hardfork=hardfork)) for hardfork in (None, "cancun")]
        users = [(chain, Deployed(chain, "test/PackageUser")) for chain in chains]
        for count in (1, 2, 3):
            slots = list(proofs)[:count]
            merged = tries.encode(list(dict.fromkeys(node for slot in slots for node in proofs[slot])))
            sent = []
            for chain, user in users:
                data = user.calldata("slotValues", slots, root, merged)
                used, after = Lab.send(chain, user, data, geth=geth)
                sent.append((used, data, after))
            yield result_of(f"slots by one proof: {count}", *sent)


def measure_package() -> Iterator[Result]:
    """Yield the gas of the package's walk over arrays of nodes, of its headers and receipts, and of its adapters."""
    with Lab(_BLOCK) as lab:
        case = generated("", 1, slots=1, slot_levels=(16, 16, 16, 16, 9, 2))
        [account] = case.accounts
        [(slot, nodes)] = account.slots.items()
        state_root, storage_root, word = rlp.decode(case.header)[3], keccak(nodes[0]), slot.to_bytes(32)
        user = lab.deploy("test/PackageUser")
        name = f"a slot of an array, {len(nodes)} nodes"
        yield lab.ask(name, user, "slotValue(bytes32,bytes32,bytes[])", word, storage_root, nodes)
        name = f"an account of an array, {len(account.nodes)} nodes"
        yield lab.ask(
            name, user, "account(address,bytes32,bytes[])", hex_data(account.address), state_root, account.nodes
        )
        header = prague_header(_BLOCK, state_root, bytes(32), random.Random(_SEED))
        yield lab.ask("a header's state root", user, "headerStateRoot", header)
        yield lab.ask("a header's parent beacon block root", user, "headerField", header, 19)
        receipts, of_receipts = receipts_of(_LOG_COUNTS[1])
        walk = tries.encode(receipt_nodes(receipt_trie(dict(enumerate(receipts))), _INDEX))
        shown = rlp.decode(of_receipts)[_RECEIPTS_ROOT], walk
        yield lab.ask(f"a receipt, logs: {_LOG_COUNTS[1]}", user, "receipt", _INDEX, *shown)
        yield lab.ask(
            f"a receipt's last log, logs: {_LOG_COUNTS[1]}", user, "receiptLog", _INDEX, _LOG_COUNTS[1] - 1, *shown
        )
        oracle = lab.deploy("package/CurveBlockHashOracle", lab.known(case).address, 31337)
        yield lab.ask("Curve: get_state_root", oracle, "get_state_root", _BLOCK)
        yield lab.ask("Curve: get_block_hash, of a native source", oracle, "get_block_hash", _BLOCK)
        hooks = lab.deploy("package/UnruggableHooks")
        of_account, of_slot = (encode(["bytes[]"], [each]) for each in (account.nodes, nodes))
        target = hex_data(account.address)
        name = f"Unruggable: verifyAccountState, {len(account.nodes)} nodes"
        yield lab.ask(name, hooks, "verifyAccountState", state_root, target, of_account)
        name = f"Unruggable: verifyStorageValue, {len(nodes)} nodes"
        yield lab.ask(name, hooks, "verifyStorageValue", storage_root, target, slot, of_slot)


def show(results: Sequence[Result]) -> None:
    print(f"{'case':<56} {'exec':>9} {'tx':>9} {'amsterdam':>9} {'floor':>9} {'bytes':>6}")
    for result in results:
        floor = f"{result.floor:,}" if result.floor else "-"
        later = f"{result.amsterdam:,}" if result.amsterdam else "-"
        gas = f"{result.exec:>9,} {result.tx:>9,} {later:>9} {floor:>9}"
        print(f"{result.case:<56} {gas} {result.calldata_bytes:>6,}")


def main() -> None:
    cases = list(recorded_cases())
    if not cases:
        print("The recorded proofs are not on this machine: generated cases only.")
    with ExitStack() as stack:
        geth = None
        if GETH.exists():
            geth = stack.enter_context(Geth(_CHAIN_ID, amsterdam_time=0, namespaces="eth,debug"))
        else:
            print("geth is not built (make geth), so the column `amsterdam` is empty.")
        results = list(measure([*cases, *generated_cases(), *hop_cases(), *jump_cases(), *receipt_cases()], geth))
        results += [
            *measure_branches(geth),
            *measure_sources(geth),
            *measure_reads(geth),
            *measure_shown(geth),
            *measure_votes(geth),
        ]
        results += [*measure_package(), *measure_several_slots(geth), *measure_messages(geth)]
    show(results)
    for name, gas in PUBLISHED_MESSAGES.items():
        print(f"{f'a message, {name}':<56} {'-':>9} {gas:>9,}")
    show_branches(results)
    show_ages(results)


if __name__ == "__main__":
    main()
