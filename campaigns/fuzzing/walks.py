"""Proofs of plain nodes for the views of `FactsReader`. Contract and model must agree.

A lenient writer makes nodes with faults and takes the root from them, so every hash is right, and only a node's form
can be a reason to refuse it. Some proofs are then spoilt under the same root.
"""

from collections.abc import Sequence

from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from chains.contract_artifacts import Artifact
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.simulator import Call, Simulator
from tests.contracts.walks import ReceiptWalk, Walk, anyone_reader, difference
from tests.contracts.withdrawal_walks import WithdrawalWalk

_ROUND = 1000


class _LenientWriter:
    """A writer of the nodes on a key's path. In a part of its walks each piece may have a fault."""

    def __init__(self, chance: Chance, name: bytes | int, *, pays: bool = False) -> None:
        """Write the path of a slot (32 bytes), an account (20), or the receipt or the withdrawal of an index."""
        self._chance = chance
        self._pays = pays
        # A receipt has many pieces.
        self._faults = chance.pick((0, 0, 0, 0.01, 0.02, 0.05) if isinstance(name, int) else (0, 0, 0.01, 0.03, 0.1))
        self._name = name
        self._key = (tries.encode(name) if isinstance(name, int) else keccak(name)).hex()
        self._length = len(self._key)
        self._reach = chance.pick((0, 1, 2, 2, 3, self._length) if isinstance(name, int) else (2, 12, 63, 64, 64, 65))
        self.nodes: list[bytes] = []
        self._hash(self._node(0))
        self.root = keccak(self.nodes[0])

    def _errs(self) -> bool:
        return self._chance.happens(self._faults)

    def _string(self, data: bytes) -> bytes:
        """Return the RLP of a string; with a fault, in an encoding that isn't the only one."""
        encoded = tries.encode(data)
        if not self._errs():
            return encoded
        size = len(data).to_bytes(2)
        forms = (b"\x81" + data, b"\xb8" + size[1:] + data, b"\xb9" + size + data, encoded[:-1], encoded + b"\0")
        return self._chance.pick((*forms, tries.listed(data), tries.listed(encoded), tries.EMPTY))

    def _listed(self, payload: bytes) -> bytes:
        if not self._errs():
            return tries.listed(payload)
        size = len(payload).to_bytes(2)
        forms = (b"\xf8" + size[1:] + payload, b"\xf9" + size + payload, b"\xfa\0" + size + payload)
        longer = tries.listed(payload + self._chance.randbytes(self._chance.pick((1, 33))))
        return self._chance.pick((*forms, tries.listed(payload[:-1]), tries.encode(payload), longer))

    def _hash(self, node: bytes) -> bytes:
        self.nodes.insert(0, node)
        return self._string(keccak(node))

    def _refer(self, node: bytes) -> bytes:
        return node if (len(node) < 32) != self._errs() else self._hash(node)

    def _path(self, depth: int, reach: int, *, leaf: bool) -> bytes:
        nibbles = self._key[depth:reach]
        if leaf and isinstance(self._name, int) and self._chance.happens(0.3):
            # The key of another index, which may have another length.
            other = tries.encode(_index(self._chance)).hex()
            nibbles = other[depth:] if other.startswith(self._key[:depth]) else nibbles
        if self._errs():
            nibbles = self._chance.pick((nibbles[1:], nibbles + "0", nibbles * 2, ""))
        if nibbles and self._chance.happens(0.1):
            # Another key parts from this one at any nibble.
            place = self._chance.pick((0, len(nibbles) - 1, self._chance.below(len(nibbles))))
            nibbles = (
                nibbles[:place] + f"{int(nibbles[place], 16) ^ 1 << self._chance.below(4):x}" + nibbles[place + 1 :]
            )
        path = tries.hex_prefix(nibbles, leaf=leaf)
        if self._errs():
            path = bytes([path[0] ^ 1 << self._chance.below(8)]) + path[1:]
        return self._string(path)

    def _node(self, depth: int) -> bytes:
        length = self._length
        if depth >= self._reach or self._chance.happens(0.1):
            of_index = self._withdrawal if self._pays else self._receipt
            value = of_index() if isinstance(self._name, int) else self._value()
            return self._listed(self._path(depth, length, leaf=True) + self._string(value))
        if self._chance.happens(0.2) and depth < length - 1:
            reaches = (1, 2, 20, length - 1 - depth, length - depth)
            reach = min(depth + self._chance.pick(reaches), length if self._errs() else length - 1)
            return self._listed(self._path(depth, reach, leaf=False) + self._refer(self._node(reach)))
        # Most large tries begin with branches of sixteen hashes.
        few = ("hash", "none") if isinstance(self._name, int) else ("none", "node")
        kinds = self._chance.pick((("hash",), ("hash", "none", "none"), ("none",), few))
        children = [self._sibling(self._chance.pick(kinds)) for _ in range(16)]
        index = int(self._key[depth], 16) if depth < length else 0
        if not self._chance.happens(0.1 if isinstance(self._name, int) else 0.03):
            children[index] = self._refer(self._node(depth + 1))
        children.append(self._string(self._chance.randbytes(1)) if self._errs() else tries.EMPTY)
        if self._errs():
            children = self._chance.pick((children[:-1], [*children, tries.EMPTY], children[:3], children[:1], []))
        return self._listed(b"".join(children))

    def _sibling(self, kind: str) -> bytes:
        if kind == "node" or self._errs():
            size = self._chance.pick((1, 8, 27)) if not self._errs() else 31
            payload = tries.hex_prefix("1" * size, leaf=True)
            return self._listed(
                self._string(payload) + self._chance.pick((b"\x01", b"\x81\x80", self._listed(b"\x01")))
            )
        if kind == "hash":
            size = self._chance.pick((0, 1, 31, 33)) if self._errs() else 32
            return self._string(self._chance.randbytes(size))
        return tries.EMPTY

    def _integer(self, size: int) -> bytes:
        number = self._chance.number(size)
        data = number.to_bytes((number.bit_length() + 7) // 8)
        return self._chance.pick((b"\0" + data, b"\x01" + data.rjust(size, b"\0"), b"")) if self._errs() else data

    def _value(self) -> bytes:
        if isinstance(self._name, bytes) and len(self._name) == 32:
            value = self._string(self._integer(32) or (b"" if self._errs() else b"\x01"))
            return self._listed(value) if self._errs() else value
        hashes = [self._chance.randbytes(self._chance.pick((0, 31, 33)) if self._errs() else 32) for _ in range(2)]
        items = [self._string(item) for item in (self._integer(8), self._integer(32), *hashes)]
        return self._listed(b"".join(self._chance.pick((items[1:], [*items, b"\0"])) if self._errs() else items))

    def _receipt(self) -> bytes:
        chance = self._chance
        type_ = chance.below(0x90) if self._errs() else chance.pick((0, 0, 1, 2, 3, 4, 0x6A, 0x7E))
        status = chance.pick((b"", b"\x01", chance.randbytes(32))) if type_ == 0 else chance.pick((b"", b"\x01"))
        if self._errs():
            status = chance.pick((b"\0", b"\x02", b"\0\x01", *(chance.randbytes(size) for size in (31, 32, 33))))
        bloom = bytes(chance.pick((0, 255, 257)) if self._errs() else 256)
        logs = self._listed(b"".join(self._log() for _ in range(chance.pick((0, 1, 1, 2, 3)))))
        items = [self._string(status), self._string(self._integer(8)), self._string(bloom), logs]
        if self._errs() or (type_ == 0x7E and chance.happens(0.5)):
            items += [self._string(self._integer(8)) for _ in range(chance.pick((1, 3)) if self._errs() else 2)]
        if self._errs():
            items = chance.pick((items[1:], items[:-1], [*items, b"\0"]))
        return (bytes([type_]) if type_ or self._errs() else b"") + self._listed(b"".join(items))

    def _withdrawal(self) -> bytes:
        recipient = self._chance.randbytes(self._chance.pick((0, 19, 21, 32)) if self._errs() else 20)
        numbers = [self._integer(9 if self._errs() else 8) for _ in range(3)]
        items = [self._string(item) for item in (*numbers[:2], recipient, numbers[2])]
        if self._errs():
            items = self._chance.pick((items[1:], items[:-1], [*items, b"\0"]))
        return self._listed(b"".join(items))

    def _log(self) -> bytes:
        chance = self._chance
        emitter = chance.randbytes(chance.pick((0, 19, 21, 32)) if self._errs() else 20)
        topics = [
            self._string(chance.randbytes(chance.pick((31, 33)) if self._errs() else 32))
            for _ in range(5 if self._errs() else chance.below(5))
        ]
        data = self._string(chance.randbytes(chance.pick((0, 1, 31, 32, 55, 56, 300, chance.below(250)))))
        items = [self._string(emitter), self._listed(b"".join(topics)), data]
        return self._listed(b"".join(chance.pick((items[:-1], [*items, b"\x80"])) if self._errs() else items))

    def proof(self) -> bytes:
        return self._listed(b"".join(self._string(node) for node in self.nodes))


def spoilt(chance: Chance, nodes: Sequence[bytes]) -> bytes:
    """Return a proof of other nodes, or of these in another form."""
    place, other = chance.below(len(nodes)), chance.below(len(nodes))
    node = nodes[place]
    changed = bytearray(node)
    if node:
        changed[chance.below(len(node))] ^= 1 << chance.below(8)
    lists = (
        [*nodes[:place], *nodes[place + 1 :]],
        [*nodes[:place], node, *nodes[place:]],
        [*nodes[:place], nodes[other], *nodes[place + 1 :]],
        [*nodes[:place], bytes(changed), *nodes[place + 1 :]],
        [*nodes[:place], node[: chance.below(len(node) + 1)], *nodes[place + 1 :]],
        [*nodes[:place], node + chance.randbytes(1), *nodes[place + 1 :]],
        [*nodes, chance.pick((b"", tries.EMPTY, node))],
    )
    proof = tries.encode(chance.pick(lists))
    if chance.happens(0.5):
        proof = tries.encode(list(nodes))
        at = chance.below(min(len(proof), 8)) if chance.happens(0.5) else chance.below(len(proof))
        flipped = bytes([proof[at] ^ 1 << chance.below(8)])
        proof = chance.pick((proof[:at] + flipped + proof[at + 1 :], proof[:at], proof + chance.randbytes(1)))
    return proof


def _index(chance: Chance) -> int:
    return chance.pick((0, 1, chance.below(128), 127, 128, 129, 144, 255, 256, 257, chance.below(2**16), 2**16 - 1))


def _walk(chance: Chance) -> Walk | ReceiptWalk | WithdrawalWalk:
    names: Sequence[bytes | int] = (chance.randbytes(32), chance.randbytes(32), chance.randbytes(20), _index(chance))
    name = chance.pick(names)
    pays = isinstance(name, int) and chance.happens(0.4)
    if chance.happens(0.02):
        root = tries.EMPTY_ROOT
        proof = bytes.fromhex(
            chance.pick(("c0", "c28180", "c180", "c100", "80", "", "c0c0", "c3818080", "c28181", "f800"))
        )
    else:
        writer = _LenientWriter(chance, name, pays=pays)
        root = writer.root
        proof = spoilt(chance, writer.nodes) if chance.happens(0.25) else writer.proof()
    if isinstance(name, bytes):
        return Walk(name, root, proof)
    # The proof of one index is shown for another.
    index = chance.pick((_index(chance), _index(chance), 2**16)) if chance.happens(0.05) else name
    if pays:
        return WithdrawalWalk(index, root, proof)
    return ReceiptWalk(index, chance.pick((None, None, 0, 0, 1)), root, proof)


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` proofs, on another FactsReader if given. Deterministic in `seed`. Raise Divergence."""
    chance, tally, simulator = Chance(seed), Tally(), Simulator(chain)
    reader = anyone_reader(chain, artifact)
    while tally.done < count:
        walks = [_walk(chance) for _ in range(min(_ROUND, count - tally.done))]
        outcomes = simulator.run([Call(reader.address, walk.calldata) for walk in walks])
        for walk, outcome in zip(walks, outcomes, strict=True):
            refusal, how = difference(walk, outcome)
            if how:
                raise Divergence(f"{how}. walks.run, seed {seed}, count {count}")
            tally.done += 1
            if refusal:
                tally.refused[sentence(refusal)] += 1
            else:
                tally.accepted[_form(walk, outcome.data)] += 1
    return tally


def _form(walk: Walk | ReceiptWalk | WithdrawalWalk, answer: bytes) -> str:
    if isinstance(walk, WithdrawalWalk):
        return "withdrawal"
    if isinstance(walk, ReceiptWalk):
        kind, is_absent = "receipt" if walk.log is None else "log", not any(answer)
    elif len(walk.name) == 32:
        kind, is_absent = "slot", not any(answer)
    else:
        kind, is_absent = "account", answer[96:] == tries.EMPTY_ROOT
    return f"absent {kind}" if is_absent else kind
