"""Whole transactions to the registry. Contract and model must agree on each.

Operations of genuine proofs are cut, copied, moved and combined. Their headers' extra data looks like subtrees.
Accepted facts must be true according to py-trie, and have the only allowed encoding.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import rlp
from eth_utils.crypto import keccak

from campaigns.fuzzing.batch import Batch, refuses, takes
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.ledger import Ledger, Read
from campaigns.fuzzing.memory import SUBTREE, WatchedReader, raw
from campaigns.fuzzing.operations import mutate as mutate_operation
from campaigns.fuzzing.operations import subtree, within
from campaigns.fuzzing.scenes import random_scene
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from chains.contract_artifacts import NO_CONTRACT, Artifact
from chains.encoding import HISTORY_WINDOW, hex_data, shortest
from chains.tries.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    ACCOUNT,
    BRANCH,
    CLOSES_STORAGE,
    END_OF_BRANCHES,
    HASH_ALONE,
    HASH_BYTES,
    HASHED_HEADER_FIELDS,
    HEADER_ALONE,
    HEADER_FACTS,
    HEADER_PARITY,
    OPEN_STORAGE,
    PARENT,
    encode,
    encode_parent_hash,
)
from devnet.devchain import DevChain
from tests.contracts.decoder import InvalidPacked, PackedFacts, _Decoder, decode
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator
from tests.contracts.worlds import World, empty_world, mutate, number_of, random_world

_SIZES = (0, 1, 2, 3, 5, 10, 20, 60)
ERRORS = {
    keccak(text=error)[:4]
    for error in (
        *("InvalidProof()", "UnknownFunction(bytes4)", "InvalidHeader()", "UnknownBlock(uint256)"),
        "HeaderMismatch(uint256)",
        "HeaderFieldNotProven(uint256,uint8)",
    )
}
_HEADER_FIELDS = (0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14)


class Round:
    """Transactions about one world, from one state of the registry: with or without the world's block accumulated."""

    def __init__(self, bench: "Bench", world: World, *, accumulated: bool) -> None:
        self._bench = bench
        self._world = world
        self._ledger = Ledger()
        self._true: set[bytes] = set()
        source, registry = bench.source, bench.registry
        first = [Call(source.address, source.calldata("set", number_of(world.vouched), keccak(world.vouched)))]
        proofs = [encode_parent_hash([world.vouched])] if world.by_child else []
        if accumulated:
            proofs.append(encode(world.headers, world.root))
        self._begun: list[PackedFacts] = []
        for proof in proofs:
            first.append(Call(registry.address, proof))
            self._begun.append(self._decode(proof))
            self._ledger.store(self._begun[-1])
        self._batch = Batch(bench.simulator, first)
        self._shown_first = " ".join(hex_data(proof) for proof in proofs) or "nothing"

    def add(self, calldata: bytes, *, reads: bool) -> None:
        """Add a transaction, which sees what earlier ones have stored.

        Raise Divergence for any added transaction, or if the model accepts a false fact.
        """
        ledger, address, tally = self._ledger, self._bench.registry.address, self._bench.tally
        tally.done += 1
        where = f"{self._bench.name}, transaction {tally.done}"

        def shown() -> str:
            return f"{where}. The model: {refusal or 'It takes it.'} After {self._shown_first}: 0x{calldata.hex()}"

        refusal = ""
        try:
            facts = self._decode(calldata)
        except InvalidPacked as error:
            refusal = str(error)
            tally.refused[sentence(refusal)] += 1
            self._batch.add(Call(address, calldata), refuses(ERRORS), shown)
        else:
            if calldata not in self._true:
                if why := self._why_false(facts, calldata):
                    raise Divergence(f"Contract or model takes {why}. {shown()}")
                self._true.add(calldata)
            tally.accepted.update(accepted_forms(facts))
            ledger.logs = []
            ledger.store(facts)
            self._batch.add(Call(address, calldata), takes(ledger.logs), shown)
            if reads:
                self._batch.add_reads(address, self._reads(facts), shown)
        if self._batch.is_full:
            self.finish()

    def finish(self) -> None:
        """Run the remaining transactions. Raise Divergence."""
        self._batch.run()
        self._ledger = Ledger()
        for facts in self._begun:
            self._ledger.store(facts)

    def _decode(self, calldata: bytes) -> PackedFacts:
        vouched = self._world.vouched
        return decode(
            calldata,
            block_hash=lambda number: keccak(vouched) if number == number_of(vouched) else None,
            state_root=self._ledger.state_roots.get,
            known_hashes=self._ledger.block_hashes,
        )

    def _why_false(self, facts: PackedFacts, calldata: bytes) -> str:
        """Return the fault in the facts or their encoding. Empty if there is none."""
        if not self._world.agrees(facts):
            return "what py-trie denies"
        if facts.header_fields:
            fields = rlp.decode(facts.headers[-1])
            for place, value in facts.header_fields.items():
                content = fields[place]
                if value != (keccak(content) if place in HASHED_HEADER_FIELDS else content.rjust(HASH_BYTES, b"\0")):
                    return f"another field {place} of the header"
        return "" if self._world.encode_again(facts) == calldata else "another encoding"

    def _reads(self, facts: PackedFacts) -> Iterator[Read]:
        for address in facts.accounts:
            yield from self._ledger.account_reads(address, facts.block_number)
        for digest in facts.known_hashes:
            # The block hash source vouches for no block with this number.
            yield self._ledger.hash_read(2**64 - 1, digest)
        yield from self._ledger.header_reads(facts.block_number, {*facts.header_fields, 0, 3, 8, 12, 30, 31})


# --- Transactions -----------------------------------------------------------------------------------------------------


def split(operations: bytes) -> list[bytes]:
    """Split a genuine proof into its operations. Raise Divergence if the model refuses it."""
    cuts: list[int] = []
    reader = WatchedReader(operations, lambda _: cuts.append(reader.cursor))
    try:
        _Decoder(reader, HISTORY_WINDOW).run()
    except InvalidPacked as refusal:
        raise Divergence(f"The model refuses a genuine proof: {refusal} 0x{operations.hex()}") from refusal
    return [operations[begin:end] for begin, end in pairwise(cuts)]


class Composer:
    """A writer of transactions about a world. Some of them are genuine."""

    def __init__(self, chance: Chance, world: World, strangers: Sequence[bytes]) -> None:
        """`strangers` are operations about other worlds."""
        self._chance = chance
        self._world = world
        prefix = len(_block(world.number))
        self._genuine = [
            split(world.prove(world.ask(chance.pick((1, 2, 6, 15))), known=True)[prefix:]) for _ in range(6)
        ]
        self.operations = [operation for each in self._genuine for operation in each]
        self._strangers = strangers or self.operations
        self._addresses = [*world.accounts, chance.randbytes(20)]
        # Long headers are sent less often, because they are slow.
        self._share_of_headers = 0.4 if len(world.header) < 5000 else 0.05

    def transaction(self) -> bytes:
        chance = self._chance
        operations = chance.pick(self._genuine)
        if chance.happens(0.85):
            operations = self._change(list(operations))
        if chance.happens(self._share_of_headers):
            calldata = self._headers() + self._after_headers(b"".join(operations))
        else:
            block = _block(self._world.number)
            if chance.happens(0.03):
                digits = block[1:]
                block = chance.pick(
                    (b"\0", bytes([len(block)]) + b"\0" + digits, b"\x09" + digits.rjust(9, b"\1"), b"\x7f")
                )
            calldata = block + b"".join(operations)
        if chance.happens(0.1) and len(calldata) < 20_000:
            calldata = mutate(chance, calldata, b"".join(chance.pick(self._genuine)) or b"\0")
        return calldata

    def _headers(self) -> bytes:
        """Return headers that mostly lead to the block."""
        chance, world = self._chance, self._world
        chain = [world.vouched, *world.headers] if world.by_child else list(world.headers)
        if chance.happens(0.6):
            chain = list(world.headers)
        elif chance.happens(0.4):
            chain = chain[chance.below(len(chain)) :]
        elif chance.happens(0.4):
            chain = chain[: chance.between(1, len(chain))]
        elif chance.happens(0.5):
            chain.insert(chance.below(len(chain)), chance.pick(chain))
        else:
            chance.shuffle(chain)
        return bytes([PARENT]).join(chain)

    def _after_headers(self, operations: bytes) -> bytes:
        chance = self._chance
        facts = header_facts(chance) if chance.happens(0.3) else b""
        if chance.happens(0.15):
            operations = bytes([chance.pick((HEADER_ALONE, HASH_ALONE))])
            if chance.happens(0.7):
                facts = b"" if operations == bytes([HASH_ALONE]) else facts
        return facts + operations

    def _change(self, operations: list[bytes]) -> list[bytes]:
        changes = (
            self._leave_out,
            self._repeat,
            self._swap,
            self._put_other,
            self._put_other,
            self._replace,
            self._put_random,
            self._mutate,
            self._mutate,
            self._take_more,
            self._move_storage,
            self._rename,
            self._cut,
        )
        for _ in range(self._chance.pick((1, 1, 1, 2, 3))):
            self._chance.pick(changes)(operations)
        return operations

    def _place(self, operations: list[bytes]) -> int:
        return self._chance.below(len(operations) + 1)

    def _leave_out(self, operations: list[bytes]) -> None:
        del operations[(place := self._place(operations)) : place + 1]

    def _repeat(self, operations: list[bytes]) -> None:
        place = self._place(operations)
        length = self._chance.pick((1, 1, 2, 5, 20))
        at = place if self._chance.happens(0.5) else self._place(operations)
        operations[at:at] = operations[place : place + length]

    def _swap(self, operations: list[bytes]) -> None:
        first = self._place(operations)
        second = first + 1 if self._chance.happens(0.5) else self._place(operations)
        if max(first, second) < len(operations):
            operations[first], operations[second] = operations[second], operations[first]

    def _put_other(self, operations: list[bytes]) -> None:
        operations.insert(self._place(operations), self._other())

    def _replace(self, operations: list[bytes]) -> None:
        place = self._place(operations)
        operations[place : place + 1] = [self._other()]

    def _other(self) -> bytes:
        return self._chance.pick(self._strangers if self._chance.happens(0.3) else self.operations)

    def _put_random(self, operations: list[bytes]) -> None:
        begun = random_scene(self._chance)
        below = None if begun.scene.storage is None else begun.scene.state
        operation = begun.writer.suiting(begun.seeming, below, is_history=self._chance.happens(0.3))
        operations.insert(self._place(operations), operation)

    def _mutate(self, operations: list[bytes]) -> None:
        if operations:
            place = self._chance.below(len(operations))
            operations[place : place + 1] = filter(None, [mutate_operation(self._chance, operations[place])])

    def _take_more(self, operations: list[bytes]) -> None:
        """Let a branch take another number of subtrees than there are."""
        branches = [at for at, operation in enumerate(operations) if BRANCH <= operation[0] < END_OF_BRANCHES]
        if branches:
            place = self._chance.pick(branches)
            form = operations[place][0] & 0xF0
            operations[place] = bytes([form | self._chance.below(16)]) + operations[place][1:]

    def _move_storage(self, operations: list[bytes]) -> None:
        """Open an account's storage elsewhere, or again."""
        opened = [at for at, operation in enumerate(operations) if operation[0] == OPEN_STORAGE]
        operation = bytes([OPEN_STORAGE]) + self._chance.pick(self._addresses)
        if opened and self._chance.happens(0.5):
            operation = operations.pop(self._chance.pick(opened))
        operations.insert(self._place(operations), operation)

    def _rename(self, operations: list[bytes]) -> None:
        """Replace the account of a true claim by another account."""
        named = [at for at, operation in enumerate(operations) if _address_place(operation)]
        if named:
            place = self._chance.pick(named)
            operation, begin = operations[place], _address_place(operations[place])
            operations[place] = operation[:begin] + self._chance.pick(self._addresses) + operation[begin + 20 :]

    def _cut(self, operations: list[bytes]) -> None:
        """Cut the beginning or the end, or continue with another proof's operations."""
        place = self._place(operations)
        which = self._chance.below(3)
        if which == 0:
            del operations[place:]
        elif which == 1:
            del operations[:place]
        else:
            other = self._chance.pick(self._genuine)
            operations[place:] = other[self._chance.below(len(other)) :]


def _address_place(operation: bytes) -> int:
    """Return the offset of the address in the operation. 0 if there is none."""
    first = operation[0]
    if first >= ACCOUNT:
        return 0 if first & CLOSES_STORAGE else 3
    if first >= ABSENT_ACCOUNT:
        return 0 if first & ABSENT_CLOSES_STORAGE else 1
    return int(first == OPEN_STORAGE)


def _block(number: int) -> bytes:
    digits = shortest(number) or b"\0"
    return bytes([len(digits)]) + digits


def extra_data(chance: Chance, keys: Sequence[int], counts: Sequence[int] = (0, 2, 5)) -> bytes:
    """Return bytes that look like this many subtrees on the paths to keys."""
    depths = (0, 0, 1, 1, 2, 3, 60)
    items = [
        subtree(chance, within(chance, chance.pick(keys), depth), depth)
        for depth in (chance.pick(depths) for _ in range(chance.pick(counts)))
    ]
    # The memory zone of the stack begins at a multiple of a subtree's size after the place where headers are hashed.
    return chance.randbytes(chance.below(SUBTREE)) + b"".join(map(raw, items))


def header_facts(chance: Chance) -> bytes:
    """Return the operation that proves header fields, mostly with the right parity."""
    places = chance.sample(_HEADER_FIELDS, chance.pick((1, 2, 5)))
    mask = sum(1 << place for place in places)
    if mask.bit_count() % 2 and chance.happens(0.97):
        mask |= HEADER_PARITY
    return bytes([HEADER_FACTS]) + mask.to_bytes(4)


# --- The campaign -----------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, chain: DevChain, name: str, artifact: Artifact | None) -> None:
        """`name` is reported with a divergence."""
        self.name = name
        self.source = Deployed(chain, "test/SettableBlockHashSource", 1)
        self.registry = Deployed(
            chain, "FactsRegistry", 1, self.source.address, HISTORY_WINDOW, NO_CONTRACT, artifact=artifact
        )
        self.simulator = Simulator(chain)
        self.tally = Tally()


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` transactions, on another FactsRegistry if given. Deterministic in `seed`.

    Raise Divergence.
    """
    chance = Chance(seed)
    bench = Bench(chain, f"transactions.run, seed {seed}, count {count}", artifact)
    strangers: Sequence[bytes] = ()
    while bench.tally.done < count:
        world = some_world(chance)
        composer = Composer(chance, world, strangers)
        strangers = composer.operations
        for accumulated, most in ((False, 100), (True, 300)):
            work = Round(bench, world, accumulated=accumulated)
            for _ in range(min(most, count - bench.tally.done)):
                work.add(composer.transaction(), reads=chance.happens(0.3))
            work.finish()
    return bench.tally


def some_world(chance: Chance) -> World:
    number = chance.below(300) if chance.happens(0.5) else chance.getrandbits(chance.pick((16, 32, 62)))
    if chance.happens(0.03):
        return empty_world(number)
    walked = chance.pick((0, 0, 1, 2))
    world = random_world(chance, number, chance.pick(_SIZES), walked, by_child=chance.happens(0.3))
    keys = [int.from_bytes(keccak(address)) for address in world.accounts] or [chance.getrandbits(256)]
    # The extra data has up to 60 kB.
    world.make_headers(extra_data(chance, keys, (0, 0, 2, 20, 300) if chance.happens(0.3) else (0, 2, 5)))
    return world


def accepted_forms(facts: PackedFacts) -> Iterator[str]:
    """Yield a label for each thing that the accepted calldata proves."""
    yield f"{len(facts.headers)} headers" if facts.headers else "block by number"
    if facts.header_fields:
        yield "fields of the header"
    if facts.headers and not facts.accounts:
        yield "hash of the parent" if facts.known_hashes else "header alone"
    for account in facts.accounts.values():
        yield "account" if account.exists else "absent account"
        for value in account.slots.values():
            yield "slot" if value else "zero slot"
        for _ in account.history:
            yield "block hash"
