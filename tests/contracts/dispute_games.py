"""Dispute games about the blocks of an OP Stack chain, on the development chain below it.

Factory and games are the OP Stack's own code, from the npm package @eth-optimism/contracts-bedrock. The
AnchorStateRegistry is a stand-in: the package has it from before it could tell which claims are valid. What holds the
bonds takes whatever it is sent, and clocks run out at once, so that a game can be resolved when it is made.
"""

from typing import Any

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from contracts import load_artifact
from devnet.devchain import DevChain
from devnet.foreign_contracts import OWNER, ask, bytecode, create, create_behind_proxy, send

GAME_TYPE = 0
_ARTIFACTS = "@eth-optimism/contracts-bedrock/forge-artifacts/"
_FACTORY, _GAME = (f"{_ARTIFACTS}{name}.sol/{name}.json" for name in ("DisputeGameFactory", "FaultDisputeGame"))
# Takes any call and answers nothing: STOP; before it, what copies this byte.
_ACCEPTS_ALL = "600180600a5f395ff30000"
_PRESTATE = b"\x03" + bytes(31)
_MAX_DEPTH, _SPLIT_DEPTH = 73, 30


def output_root(state_root: bytes, message_passer_storage_root: bytes, block_hash: bytes) -> bytes:
    """Return what a game claims of a block (OP Stack specification, "Proposals"), of 32 bytes as its parts."""
    return keccak(bytes(32) + state_root + message_passer_storage_root + block_hash)


def output_of(chain: DevChain, number: int) -> bytes:
    """Return the output root of a block of the OP Stack chain, whose header has all its parts since Isthmus."""
    block = chain.rpc("eth_getBlockByNumber", hex(number), False)
    return output_root(*(bytes.fromhex(block[name][2:]) for name in ("stateRoot", "withdrawalsRoot", "hash")))


class DisputeGames:
    """The contracts on `chain`; `anchor_state_registry` is an address. Anybody proposes, and acts as the guardian."""

    def __init__(self, chain: DevChain, source_id: int, *, delay_seconds: int = 0) -> None:
        """`delay_seconds` must be over after a game was resolved, before its claim is valid."""
        self.chain = chain
        self.factory = create_behind_proxy(chain, bytecode(_FACTORY))
        send(chain, self.factory, "initialize(address)", OWNER)
        stand_in = load_artifact("test/AnchorStateRegistryStandIn").bytecode
        arguments = encode(["address", "uint256"], [self.factory, delay_seconds])
        self.anchor_state_registry = create(chain, (stand_in + arguments).hex())
        self.source_id = source_id
        self.implement(GAME_TYPE)

    def implement(self, game_type: int) -> None:
        """Make games of a type possible, by a new implementation."""
        bonds = create(self.chain, _ACCEPTS_ALL)
        types = ["uint32", "bytes32", "uint256", "uint256", "uint64", "uint64", *["address"] * 3, "uint256"]
        values = [game_type, _PRESTATE, _MAX_DEPTH, _SPLIT_DEPTH, 0, 0, bonds, bonds, self.anchor_state_registry]
        code = bytecode(_GAME) + encode(types, [*values, self.source_id]).hex()
        game = create(self.chain, code)
        send(self.chain, self.factory, "setImplementation(uint32,address)", game_type, game)

    def propose(self, claim: bytes, number: int, *, game_type: int = GAME_TYPE) -> str:
        """Make a game that claims an output root of the block `number`; returns its address."""
        extra = number.to_bytes(32)
        create_game = "create(uint32,bytes32,bytes)"
        answer = ask(self.chain, self.factory, create_game, game_type, claim, extra)
        send(self.chain, self.factory, create_game, game_type, claim, extra)
        return to_checksum_address(answer[12:])

    def resolve(self, game: str) -> None:
        """Bring a game to its end, in favour of whoever is right by its moves."""
        send(self.chain, game, "resolveClaim(uint256,uint256)", 0, 0)
        send(self.chain, game, "resolve()")

    def settle(self, claim: bytes, number: int, *, game_type: int = GAME_TYPE) -> str:
        """Make a game that its proposer wins. Its claim is valid when the next block has a later time than this one."""
        game = self.propose(claim, number, game_type=game_type)
        self.resolve(game)
        return game

    def guardian(self, signature: str, *arguments: object) -> Any:
        """Call a function of the AnchorStateRegistry."""
        return send(self.chain, self.anchor_state_registry, signature, *arguments)

    def is_valid(self, game: str) -> bool:
        return any(ask(self.chain, self.anchor_state_registry, "isGameClaimValid(address)", game))
