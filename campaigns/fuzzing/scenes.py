"""Random memory whose undefined parts look as if they were defined."""

from typing import NamedTuple

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.ledger import word
from campaigns.fuzzing.memory import NODE_BYTES, SUBTREE, Scene, raw
from campaigns.fuzzing.operations import (
    PLACES,
    Name,
    Names,
    Writer,
    account_name,
    branch,
    flip_nibble,
    prefix,
    siblings,
    some,
    subtree,
    within,
)
from chains.tries.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    AT_EXTENSION,
    AT_LEAF,
    AT_SAME,
    HASH_BYTES,
    HISTORY_ADDRESS,
    MAX_DEPTH,
    NIBBLES,
    ZERO_SLOT,
)
from tests.contracts.decoder import EMPTY, _Subtree

_DEPTHS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 7, 8, 9, 31, 60, 61, 62)
# Numbers that could be mistaken for sizes or addresses.
_ABSURD = (32, 33, 64, 0x100, 0x157, 0x2C0, 0x400, 0x640, 0x60640, 2**256 - 1, 2**255)
_HISTORY = account_name(HISTORY_ADDRESS)
# Number of subtrees that fit into the memory zone of nodes. The stack begins after that zone.
_IN_NODE_ZONE = NODE_BYTES // SUBTREE


class Case(NamedTuple):
    """Operations, and the stacks that they are made for."""

    operations: bytes
    state: list[_Subtree]
    storage: list[_Subtree] | None = None
    owner: bytes = HISTORY_ADDRESS

    def scene(self, chance: Chance) -> Scene:
        """Return a scene with these stacks amid random memory. The state's stack lies above random subtrees."""
        like = (self.storage or self.state or [subtree(chance, chance.getrandbits(256), 1)])[-1]
        return Scene(
            block=chance.getrandbits(64),
            state=strays(chance) + self.state,
            storage=self.storage,
            owner=self.owner,
            node=garbage(chance, like, _IN_NODE_ZONE),
            above=garbage(chance, like, chance.below(3)),
        )


class Begun(NamedTuple):
    scene: Scene
    writer: Writer
    seeming: list[_Subtree]
    """The open stack, extended by subtrees below its bottom or above its top that seem to belong to it."""
    beyond: int
    """Number of the seeming subtrees above the top."""


def random_scene(chance: Chance) -> Begun:
    account = _HISTORY if chance.happens(0.25) else chance.pick(Names.of_accounts().all)
    slot = chance.pick(Names.of_slots().all)
    is_open = chance.happens(0.6)
    seeming = [*strays(chance), *_group(chance, slot if is_open else account)]
    if is_open and chance.happens(0.35):
        seeming = [*(strays(chance) if chance.happens(0.1) else []), _root(chance)]
    # Sometimes the stack seems to continue below its bottom or above its top.
    bottom = chance.between(1, len(seeming)) if seeming and chance.happens(0.12) else 0
    top = chance.between(bottom, len(seeming)) if chance.happens(0.06) else len(seeming)
    below, stack, above = seeming[:bottom], seeming[bottom:top], seeming[top:]
    state, storage, node = stack, None, below[-_IN_NODE_ZONE:]
    if is_open:
        state = below or [*strays(chance), *(_group(chance, account) if chance.happens(0.6) else [])]
        storage, node = stack, []
    like = seeming[-1] if seeming else subtree(chance, account.key, 1)
    scene = Scene(
        block=chance.getrandbits(64),
        state=state,
        storage=storage,
        owner=account.written if is_open else chance.randbytes(20),
        node=garbage(chance, like, _IN_NODE_ZONE - len(node)) + b"".join(map(raw, node)),
        above=b"".join(map(raw, above)) + garbage(chance, like, chance.below(4)),
    )
    return Begun(scene, Writer(chance, slot, account), seeming, len(above))


def strays(chance: Chance) -> list[_Subtree]:
    """Return unrelated subtrees."""
    return [subtree(chance, chance.getrandbits(256), chance.pick(_DEPTHS)) for _ in range(chance.pick((0, 0, 1, 2)))]


def _root(chance: Chance) -> _Subtree:
    root = subtree(chance, chance.getrandbits(256), int(chance.happens(0.06)))
    if chance.happens(0.4):
        root.reference, root.reach = EMPTY, NIBBLES
    return root


def _group(chance: Chance, name: Name) -> list[_Subtree]:
    """Return children of one branch on a name's path: some, all up to the name's position, or none."""
    if chance.happens(0.1):
        return []
    depth = chance.pick(_DEPTHS) if chance.happens(0.6) else chance.between(1, MAX_DEPTH)
    own = prefix(name.key, depth) & 0x0F
    kind = chance.random()
    if kind < 0.3:
        # The name's own leaf can come next.
        places = some(chance, range(own))
    elif kind < 0.7:
        places = [*some(chance, range(own)), own]
    else:
        places = some(chance) or [own]
    group = siblings(chance, name.key, depth, places)
    return _spoil(chance, group) if group and chance.happens(0.1) else group


def _spoil(chance: Chance, group: list[_Subtree]) -> list[_Subtree]:
    """Change the group so that it no longer is the ordered children of one branch."""
    place = chance.below(len(group))
    item = group[place]
    how = chance.below(6)
    if how == 0:
        item.depth = max(0, min(62, item.depth + chance.pick((-1, 1))))
    elif how == 1:
        group.reverse()
    elif how == 2:
        item.key = flip_nibble(chance, item.key, 0, NIBBLES - 1)
    elif how == 3:
        group.append(subtree(chance, item.key, item.depth))
    elif how == 4:
        group.insert(place, subtree(chance, item.key, item.depth))
    else:
        item.key = chance.getrandbits(256)
    return group


def garbage(chance: Chance, like: _Subtree, count: int) -> bytes:
    """Return random bytes, as many as `count` subtrees take."""
    if chance.happens(0.4):
        return chance.randbytes(SUBTREE * count)
    items = []
    for _ in range(count):
        item = raw(subtree(chance, within(chance, like.key, max(like.depth - 1, 0)), like.depth))
        if chance.happens(0.3):
            item = item[:HASH_BYTES] + word(chance.pick(_ABSURD)) + item[2 * HASH_BYTES :]
        elif chance.happens(0.1):
            item = chance.pick((bytes(SUBTREE), b"\x80" * SUBTREE, b"\xff" * SUBTREE))
        items.append(item)
    return b"".join(items)


# --- Nearly right -----------------------------------------------------------------------------------------------------


def nearly_siblings(chance: Chance) -> Case:
    """Return a case with a branch of subtrees, one of which mostly isn't its child.

    That subtree's path, position or depth is wrong. Each nibble of a path is equally likely to differ, at any depth.
    """
    nibble = chance.below(MAX_DEPTH - 1)
    depth = chance.between(nibble + 2, MAX_DEPTH)
    places = sorted(chance.sample(PLACES, chance.between(2, 16)))
    items = siblings(chance, chance.getrandbits(256), depth, places)
    operation = branch(chance, len(places), places, some(chance), ())
    item, how = chance.pick(items), chance.random()
    if how < 0.6:
        flipped = flip_nibble(chance, item.key, nibble, nibble)
        distance = chance.pick((8, 16, 32))
        if nibble + distance < depth - 1 and chance.happens(0.2):
            # Two equal flips. A comparison that combines parts of a path by "xor" would miss them.
            flipped ^= (flipped ^ item.key) >> 4 * distance
        item.key = flipped
    elif how < 0.7:
        item.key = flip_nibble(chance, item.key, depth - 1, depth - 1)
    elif how < 0.8:
        item.depth = chance.pick((depth - 1, min(depth + 1, MAX_DEPTH), chance.between(0, MAX_DEPTH)))
    return Case(operation, items) if chance.happens(0.5) else Case(operation, [], items)


def nearly_the_same(chance: Chance) -> Case:
    """Claim that a key is absent at a subtree whose own key differs in one nibble.

    The claim is true if that nibble is in the subtree's path. Above the path the key leads elsewhere, and below it to
    the subtree.
    """
    slot, account = chance.pick(Names.of_slots().all), chance.pick(Names.of_accounts().all)
    kind = chance.below(3)
    name = account if kind else slot
    item = subtree(chance, flip_nibble(chance, name.key, 0, NIBBLES - 1), chance.between(0, MAX_DEPTH))
    item.last = min(item.last, name.key - 1)
    if kind == 0:
        return Case(bytes([ZERO_SLOT + AT_SAME]) + name.written, [], [item])
    if kind == 1:
        return Case(bytes([ABSENT_ACCOUNT | AT_SAME]) + name.written, [item])
    nothing = _Subtree(EMPTY, name.key, 0, NIBBLES, name.key)
    return Case(bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | AT_SAME]), [item], [nothing], name.written)


def nearly_the_same_path(chance: Chance) -> Case:
    """Prove a slot absent by another slot's leaf or an extension, whose path differs in one nibble."""
    name, depth = chance.pick(Names.of_slots().all), chance.between(0, MAX_DEPTH - 1)
    is_leaf = chance.happens(0.5)
    end = NIBBLES if is_leaf else chance.between(depth + 1, MAX_DEPTH)
    length = end - depth
    path = prefix(flip_nibble(chance, name.key, depth, end - 1), end) & (1 << 4 * length) - 1
    how, content = (AT_LEAF, b"\1\7") if is_leaf else (AT_EXTENSION, chance.randbytes(HASH_BYTES))
    where = bytes([depth]) if is_leaf else bytes([depth, length])
    return Case(bytes([ZERO_SLOT + how]) + name.written + where + path.to_bytes((length + 1) // 2) + content, [], [])
