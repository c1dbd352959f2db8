"""Proofs of random states with bytes changed, tried on the contract and on the model.

Nothing mutated may verify. What happens to be the one encoding of other true facts, as py-trie tells them, is another
proof and counted apart.
"""

import random

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie
from trie.exceptions import BadTrieProof, ValidationError

from campaigns.fuzzing.tally import Divergence, Tally
from chains import history
from chains.packed import AccountToProve, CannotPack, encode, encode_parent_hash
from contracts import NO_CONTRACT
from devnet.devchain import DevChain
from tests.contracts.decoder import InvalidPacked, PackedFacts, decode
from tests.contracts.deployed import Deployed
from tests.contracts.harness import Harness
from tests.contracts.worlds import World, empty_world, mutate, number_of, random_world

_SIZES = (0, 1, 2, 3, 5, 17, 40, 200)
_ASKED = (1, 2, 6, 6, 40)
_LARGEST = 60
# Of each proof.
_MUTATIONS = 250


CHANGED = "Something was changed."
OTHERS = "proofs of other true facts"
GENUINE = "genuine proofs"


class Bench:
    """A registry, the source that it trusts, and the harness that tries many proofs at once."""

    def __init__(self, chain: DevChain) -> None:
        self.source = Deployed(chain, "test/SettableBlockHashSource", 1)
        self.registry = Deployed(chain, "FactsRegistry", 1, self.source.address, history.WINDOW, NO_CONTRACT)
        self.harness = Harness(chain)

    def trust(self, world: World) -> None:
        """The first of the world's headers, in the way that it says."""
        self.source.send("set", number_of(world.vouched), keccak(world.vouched))
        if world.by_child:
            self.registry.send_raw(encode_parent_hash([world.vouched]))


def python_accepts(proof: bytes, world: World, *, accumulated: bool) -> PackedFacts | None:
    try:
        return decode(
            proof,
            block_hash=lambda number: keccak(world.vouched) if number == number_of(world.vouched) else None,
            state_root=lambda number: world.root if accumulated and number == world.number else None,
            known_hashes={keccak(world.headers[0])} if world.by_child else (),
        )
    except InvalidPacked:
        return None


def check(bench: Bench, world: World, proof: bytes, mutated: list[bytes], *, accumulated: bool, tally: Tally) -> None:
    """Raises Divergence."""
    taken, *answers = bench.harness.accepted(bench.registry, [proof, *mutated])
    facts = python_accepts(proof, world, accumulated=accumulated)
    if not taken or facts is None or not world.agrees(facts) or world.encode_again(facts) != proof:
        raise Divergence(f"A valid proof at block {world.number} is refused, or misread: {proof.hex()}")
    tally.accepted[GENUINE] += 1
    for spoilt, answer in zip(mutated, answers, strict=True):
        facts = python_accepts(spoilt, world, accumulated=accumulated)
        if answer != (facts is not None):
            raise Divergence(f"Contract ({answer}) and Python ({not answer}) differ on: {spoilt.hex()}")
        if facts is None:
            tally.refused[CHANGED] += 1
        elif world.agrees(facts) and world.encode_again(facts) == spoilt:
            tally.accepted[OTHERS] += 1
        else:
            raise Divergence(f"A mutated proof verifies: {spoilt.hex()}")


def check_nodes(bench: Bench, world: World, chance: random.Random, tally: Tally, *, count: int = 25) -> None:
    """Mutate the nodes of a proof. What can still be packed must prove what py-trie reads from them.

    For a block that is accumulated. Raises Divergence.
    """
    address = chance.choice([*sorted(world.accounts), chance.randbytes(20)])
    nodes = world.to_prove(address, 1, []).nodes
    spoilt = [_mutate_nodes(chance, list(nodes)) for _ in range(count)]
    values = [_read_by_py_trie(world.root, keccak(address), each) for each in spoilt]
    proofs = [_pack(world, AccountToProve(address, 1, each)) for each in spoilt]
    answers = bench.harness.accepted(bench.registry, [proof for proof in proofs if proof])
    if not all(answers) or [value is None for value in values] != [proof == b"" for proof in proofs]:
        raise Divergence(f"py-trie and the packed form differ on nodes of {address.hex()}: {spoilt}")
    for value, proof in zip(values, proofs, strict=True):
        if value is None:
            tally.refused[CHANGED] += 1
            continue
        facts = python_accepts(proof, world, accumulated=True)
        if facts is None or value != world.state.get(keccak(address)) or not world.agrees(facts):
            raise Divergence(f"py-trie and Python read different things from: {proof.hex()}")
        tally.accepted[GENUINE] += 1


def _mutate_nodes(chance: random.Random, nodes: list[bytes]) -> list[bytes]:
    place = chance.randrange(len(nodes)) if nodes else 0
    before, there, after = nodes[:place], nodes[place : place + 1], nodes[place + 1 :]
    flipped = [bytes([*node[:-1], node[-1] ^ 1 << chance.randrange(8)]) for node in there]
    cut = [node[: chance.randrange(len(node))] for node in there]
    return chance.choice(
        [before + after, before, before + flipped + after, before + cut + after, after + there + before]
    )


def _read_by_py_trie(root: bytes, key: bytes, nodes: list[bytes]) -> bytes | None:
    """Return what the nodes say of the key: empty if it isn't there, None where they say nothing."""
    try:
        return bytes(HexaryTrie.get_from_proof(root, key, [rlp.decode(node) for node in nodes]))
    except (BadTrieProof, ValidationError, rlp.exceptions.RLPException):
        return None


def _pack(world: World, account: AccountToProve) -> bytes:
    """Empty where the nodes don't suffice."""
    try:
        return encode(world.number, world.root, [account])
    except CannotPack:
        return b""


def run(chain: DevChain, seed: int, count: int) -> Tally:
    """Try at least `count` of them. Deterministic in `seed`. Raises Divergence."""
    chance = random.Random(seed)
    tally = Tally()
    number = 0
    while tally.refused[CHANGED] < count:
        # A registry of its own for each state: what one has accumulated, another hasn't.
        bench = Bench(chain)
        number += 1
        size = chance.choice(_SIZES) if number > 1 else _LARGEST
        walked, by_child = chance.choice([0, 0, 1, 2]), chance.random() < 0.3
        is_cancellation = chance.random() < 0.03
        world = (
            empty_world(number) if is_cancellation else random_world(chance, number, size, walked, by_child=by_child)
        )
        bench.trust(world)
        other = world.prove(world.ask())
        proofs = [
            (encode_parent_hash(world.headers), _MUTATIONS // 5, False),
            (world.prove(world.ask(chance.choice(_ASKED))), _MUTATIONS, False),
            (world.prove(world.ask(chance.choice(_ASKED)), known=True), _MUTATIONS, True),
        ]
        for proof, wanted, accumulated in proofs:
            if accumulated:
                bench.registry.send_raw(encode(world.headers, world.root))
            mutated = [mutate(chance, proof, other) for _ in range(wanted)]
            mutated = [spoilt for spoilt in dict.fromkeys(mutated) if spoilt not in {proof, b""}]
            check(bench, world, proof, mutated, accumulated=accumulated, tally=tally)
        check_nodes(bench, world, chance, tally)
    tally.done = tally.accepted.total() + tally.refused.total()
    return tally
