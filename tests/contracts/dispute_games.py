"""Dispute games about blocks of an OP Stack chain, on the development chain below it.

All contracts are the OP Stack's own code with other deployment values. One account has all roles, and clocks run out at
once, so a game can be resolved as soon as it is made.
"""

from typing import Any

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from devnet.devchain import DevChain
from devnet.foreign_contracts import OWNER, ask, send
from tests.contracts import supersim

_GAME_TYPE = 1
# Addresses in supersim. First the proxies of the AnchorStateRegistry and of the factory, and the implementation of
# games; then the contracts that these call: SuperchainConfig, SystemConfig, OptimismPortal and DelayedWETH.
_REGISTRY, _FACTORY = "2ea98e1a37f77e0e6eb41bb07410cc35b9bae345", "51095eac6e2b6da9811c6febbdd67add79135ce0"
_GAME = "c77c081d3245be490949e4c2e5dd8b522a194927"
_SUPERCHAIN_CONFIG, *_OTHERS = (
    "811d626a3444c5c10fa01607ee11efbeaf19b0ff",
    "3feb7f8765b9341b054eb4671cc47d3e33d1606d",
    "75ceb25776d0402972b736f6e13fd0616be98f22",
    "ae031485f7ea731d6b5dcbffe2e33417a940c1e1",
)
# The factory's owner, the guardian, the proposer and the challenger.
_PARTIES = (
    "69a2d297b1af083885fef2e8f378201da757dfd8",
    "9e6a4a0bab4de21d43ecc97bfa9d65eb3053793a",
    "147a0ea1b0a0c4a8917f3e448571112548159f2a",
    "272e54b107971e195b37d03d0bc425f3ad5497c5",
)
# Seconds: a party's clock, the clock's extension, and the delay after a game.
_CLOCK, _EXTENSION, _DELAY = 302_400, 10_800, 6


def output_root(state_root: bytes, message_passer_storage_root: bytes, block_hash: bytes) -> bytes:
    """Return the output root that a game claims (OP Stack specification, "Proposals"). Each part has 32 bytes."""
    return keccak(bytes(32) + state_root + message_passer_storage_root + block_hash)


def output_of(chain: DevChain, number: int) -> bytes:
    """Return the output root of an OP Stack block. Since Isthmus its header contains all parts."""
    block = chain.rpc("eth_getBlockByNumber", hex(number), False)
    return output_root(*(bytes.fromhex(block[name][2:]) for name in ("stateRoot", "withdrawalsRoot", "hash")))


def _constant(value: int) -> str:
    """Return EVM code that pushes a word (PUSH32)."""
    return f"7f{value:064x}"


def _new_address(chain: DevChain, former: str) -> str:
    """Return an address for another contract with the code of `former`, the same one on each run.

    A random address would change what transactions cost: a zero byte of calldata is cheaper.
    """
    return keccak(text=f"{former} at {chain.head()}")[12:].hex()


class DisputeGames:
    """The contracts on `chain`. `anchor_state_registry` is an address."""

    def __init__(self, chain: DevChain, source_id: int) -> None:
        self.chain = chain
        chosen = {_CLOCK: 0, _EXTENSION: 0, _DELAY: 0, supersim.L2: source_id}
        self._changes = dict.fromkeys(_PARTIES, OWNER[2:].lower()) | {
            **{_constant(old): _constant(new) for old, new in chosen.items()},
            _REGISTRY: _new_address(chain, _REGISTRY),
            _FACTORY: _new_address(chain, _FACTORY),
        }
        supersim.place(chain, supersim.L1, (_REGISTRY, _FACTORY, _SUPERCHAIN_CONFIG, *_OTHERS), self._changes)
        self.anchor_state_registry = to_checksum_address(self._changes[_REGISTRY])
        self.factory = to_checksum_address(self._changes[_FACTORY])
        send(chain, self.factory, "setInitBond(uint32,uint256)", _GAME_TYPE, 0)
        self.implement()

    def implement(self) -> None:
        """Give new games an implementation with the same code at another address."""
        game = _new_address(self.chain, _GAME)
        supersim.place(self.chain, supersim.L1, [_GAME], self._changes | {_GAME: game})
        send(self.chain, self.factory, "setImplementation(uint32,address)", _GAME_TYPE, to_checksum_address(game))

    def propose(self, claim: bytes, number: int) -> str:
        """Make a game that claims an output root for the block `number`. Return the game's address."""
        what = _GAME_TYPE, claim, number.to_bytes(32)
        send(self.chain, self.factory, "create(uint32,bytes32,bytes)", *what)
        return to_checksum_address(ask(self.chain, self.factory, "games(uint32,bytes32,bytes)", *what)[12:32])

    def resolve(self, game: str) -> None:
        """Resolve a game according to its moves."""
        send(self.chain, game, "resolveClaim(uint256,uint256)", 0, 0)
        send(self.chain, game, "resolve()")

    def settle(self, claim: bytes, number: int) -> str:
        """Make a game and let its proposer win. The claim becomes valid in a later block."""
        game = self.propose(claim, number)
        self.resolve(game)
        return game

    def guardian(self, signature: str, *arguments: object) -> Any:
        """Call a function of the AnchorStateRegistry as the guardian."""
        return send(self.chain, self.anchor_state_registry, signature, *arguments)

    def superchain(self, function: str) -> None:
        """Call "pause" or "unpause" as the guardian, for all chains."""
        send(self.chain, to_checksum_address(_SUPERCHAIN_CONFIG), f"{function}(address)", NO_CONTRACT)

    def is_valid(self, game: str) -> bool:
        return any(ask(self.chain, self.anchor_state_registry, "isGameClaimValid(address)", game))
