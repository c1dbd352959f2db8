"""Sources of a rollup's blocks that verify headers. Each has a function that vouches for a block."""

import random
from collections.abc import Callable

import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from chains.encoding import HISTORY_WINDOW
from devnet.arbitrum_outbox import ArbitrumOutbox
from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed
from tests.contracts.dispute_games import DisputeGames, output_root
from tests.contracts.worlds import Asked, World

ROLLUP = 5
STATE_ROOT, EXTRA_DATA = 3, 12

Vouch = Callable[..., bytes]
"""A function of an unused number, a header, and another header that replaces the first if that has no fields.

It returns the call that records the header. The next block accepts the call.
"""


def arbitrum(chain: DevChain) -> tuple[Deployed, Vouch]:
    outbox = ArbitrumOutbox(chain)
    source = Deployed(chain, "ArbitrumBlockHashSource", ROLLUP, outbox.address)

    def vouch(_: int, header: bytes, like: bytes = b"") -> bytes:
        outbox.confirm(rlp.decode(like or header)[EXTRA_DATA], keccak(header))
        return source.calldata("record", header)

    return source, vouch


def arbitrum_slot(chain: DevChain) -> tuple[Deployed, Vouch]:
    """Return a source that reads an Arbitrum slot. It vouches by a transaction that proves the slot first."""
    outbox, vouching = b"\x0b" * 20, Deployed(chain, "test/SettableBlockHashSource", ROLLUP)
    registry = Deployed(chain, "FactsRegistry", ROLLUP, vouching.address, HISTORY_WINDOW, NO_CONTRACT)
    source = Deployed(chain, "ArbitrumSlotBlockHashSource", ROLLUP, outbox, registry.address)

    def vouch(number: int, header: bytes, like: bytes = b"") -> bytes:
        slot = int.from_bytes(keccak(rlp.decode(like or header)[EXTRA_DATA] + (3).to_bytes(32)))
        world = World(random.Random(number), number)
        world.accounts[outbox] = (1, 0, keccak(b"code"))
        world.storages[outbox] = {slot: int.from_bytes(keccak(header))}
        world.close()
        vouching.send("set", number, world.block_hash)
        registry.send_raw(world.prove([Asked(outbox, 0, [slot])]))
        return source.calldata("record", number, header)

    return source, vouch


def op_stack_games(chain: DevChain) -> tuple[Deployed, Vouch]:
    games = DisputeGames(chain, ROLLUP)
    source = Deployed(chain, "OpStackGamesBlockHashSource", ROLLUP, games.anchor_state_registry)
    passer_root = bytes(range(1, 33))

    def vouch(number: int, header: bytes, like: bytes = b"") -> bytes:
        claim = output_root(rlp.decode(like or header)[STATE_ROOT], passer_root, keccak(header))
        return source.calldata("record", games.settle(claim, number), passer_root, header)

    return source, vouch
