"""Blocks of an OP Stack chain, proven by its dispute games on the chain below it."""

from collections.abc import Iterator
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from devnet.devchain import DevChain
from devnet.foreign_contracts import OWNER, ask, create, send
from tests.contracts import tries
from tests.contracts.deployed import Deployed
from tests.contracts.dispute_games import DisputeGames, output_root

OP_CHAIN_ID = 10
BLOCK = 1234
STATE_ROOT, PASSER_ROOT = b"\x01" * 32, b"\x05" * 32
ZERO = bytes(32)
NO_GAME = "0x" + "12" * 20


def header_of(number: int = BLOCK, *, state_root: bytes = STATE_ROOT) -> bytes:
    return tries.header(number, state_root)


HEADER = header_of()
HASH = keccak(HEADER)
CLAIM = output_root(STATE_ROOT, PASSER_ROOT, HASH)


@pytest.fixture(scope="module")
def below() -> Iterator[DevChain]:
    """Yield the chain below the OP Stack chain. Its blocks are a second apart."""
    with DevChain() as chain:
        chain.rpc("anvil_setBlockTimestampInterval", 1)
        yield chain


@pytest.fixture
def chain(below: DevChain) -> Iterator[DevChain]:
    """Yield the same chain, and restore its clock after the test."""
    snapshot = below.rpc("evm_snapshot")
    yield below
    assert below.rpc("evm_revert", snapshot)


@pytest.fixture
def games(chain: DevChain) -> DisputeGames:
    return DisputeGames(chain, OP_CHAIN_ID)


@pytest.fixture
def source(chain: DevChain, games: DisputeGames) -> Deployed:
    return Deployed(chain, "OpStackGamesBlockHashSource", OP_CHAIN_ID, games.anchor_state_registry)


def settled(games: DisputeGames, claim: bytes = CLAIM, number: int = BLOCK) -> str:
    """Return a game with a valid claim."""
    game = games.settle(claim, number)
    games.chain.mine()
    assert games.is_valid(game)
    return game


def refusal(source: Deployed, game: str, header: bytes = HEADER, passer_root: bytes = PASSER_ROOT) -> tuple[Any, ...]:
    return source.refusal("record", game, passer_root, header)


def refused_game(error: tuple[Any, ...]) -> str:
    name, address = error
    assert name == "ClaimNotValid"
    return str(address)


# --- Games with invalid claims ----------------------------------------------------------------------------------------


def test_a_game_that_is_not_over_proves_nothing(games, source):
    game = games.propose(CLAIM, BLOCK)
    assert refused_game(refusal(source, game)) == game.lower()
    send(games.chain, game, "resolveClaim(uint256,uint256)", 0, 0)
    assert refused_game(refusal(source, game)) == game.lower()


@pytest.mark.parametrize(
    "happens",
    [
        lambda games, game: games.guardian("blacklistDisputeGame(address)", game),
        lambda games, _: games.guardian("updateRetirementTimestamp()"),
    ],
    ids=["blacklisted", "retired"],
)
def test_a_game_that_is_set_aside_proves_nothing_and_what_it_has_proven_stays(games, source, happens):
    game, later = settled(games), settled(games, output_root(STATE_ROOT, PASSER_ROOT, keccak(header_of(BLOCK + 1))))
    source.send("record", game, PASSER_ROOT, HEADER)
    for each in (game, later):
        happens(games, each)
    assert refused_game(refusal(source, game)) == game.lower()
    assert refused_game(refusal(source, later, header_of(BLOCK + 1))) == later.lower()
    assert [source.call("blockHash", number) for number in (BLOCK, BLOCK + 1)] == [HASH, ZERO]


def test_a_contract_that_says_it_is_a_game_proves_nothing(games, source):
    """The contract answers like a valid game. It has that game's own code and immutable values."""
    game = settled(games)
    code = games.chain.rpc("eth_getCode", game, "latest")
    size = (len(code) - 2) // 2
    forged = create(games.chain, f"61{size:04x}80600b5f395ff3" + "00" + code[2:])
    assert ask(games.chain, forged, "rootClaim()") == CLAIM
    assert refused_game(refusal(source, forged)) == forged.lower()


@pytest.mark.parametrize("address", [NO_GAME, NO_CONTRACT, OWNER], ids=["nobody", "zero", "an account"])
def test_an_address_without_code_proves_nothing(games, source, address):
    settled(games)
    assert refused_game(refusal(source, address)) == address.lower()


# --- Other claims -----------------------------------------------------------------------------------------------------


def test_a_claim_is_of_one_block_alone(games, source):
    game = settled(games)
    forged = header_of(state_root=b"\x66" * 32)
    assert refusal(source, game, forged) == ("NotClaimed", game.lower(), BLOCK)
    assert refusal(source, game, header_of(BLOCK + 1)) == ("NotClaimed", game.lower(), BLOCK + 1)
    assert refusal(source, game, passer_root=b"\x06" * 32) == ("NotClaimed", game.lower(), BLOCK)
    assert source.call("blockHash", BLOCK) == ZERO


@pytest.mark.parametrize(
    "claim",
    [
        HASH,
        STATE_ROOT,
        keccak(STATE_ROOT + PASSER_ROOT + HASH),
        keccak((1).to_bytes(32) + STATE_ROOT + PASSER_ROOT + HASH),
        keccak(bytes(32) + PASSER_ROOT + STATE_ROOT + HASH),
        keccak(bytes(32) + STATE_ROOT + HASH + PASSER_ROOT),
        keccak(bytes(32) + STATE_ROOT + PASSER_ROOT + HASH + bytes(32)),
        keccak(b"\1" + (1_700_000_000).to_bytes(8) + OP_CHAIN_ID.to_bytes(32) + CLAIM),
        bytes([CLAIM[0] ^ 0x80, *CLAIM[1:]]),
        bytes([*CLAIM[:31], CLAIM[31] ^ 1]),
    ],
    ids=[
        "the hash",
        "the state root",
        "without version",
        "version 1",
        "the roots exchanged",
        "the hash before",
        "something behind",
        "a super root",
        "the first bit",
        "the last bit",
    ],
)
def test_a_valid_claim_of_anything_else_proves_nothing(games, source, claim):
    game = settled(games, claim)
    assert refusal(source, game) == ("NotClaimed", game.lower(), BLOCK)


# --- Missing contracts ------------------------------------------------------------------------------------------------

_ONE, _CLAIM = f"0x7f{1:064x}5f52", "0x7f" + CLAIM.hex() + "5f52"
ENDS = {"reverts": "60205ffd", "31 bytes": "601f5ff3", "64 bytes": "60405ff3"}


@pytest.mark.parametrize(
    "code",
    ["0x", "0x00", "0xfe", *(_ONE + end for end in ENDS.values()), f"0x7f{2:064x}5f5260205ff3", "0x5f195f5260205ff3"],
    ids=["none", "stops", "invalid", *ENDS, "two", "all bits"],
)
def test_without_a_working_anchor_state_registry_nothing_is_recorded(games, source, code):
    game = settled(games)
    games.chain.rpc("anvil_setCode", games.anchor_state_registry, code)
    assert refused_game(refusal(source, game)) == game.lower()
    games.chain.rpc("anvil_setCode", games.anchor_state_registry, _ONE + "60205ff3")
    source.send("record", game, PASSER_ROOT, HEADER)


@pytest.mark.parametrize(
    "code", ["0x", "0x00", "0xfe", *(_CLAIM + end for end in ENDS.values())], ids=["none", "stops", "invalid", *ENDS]
)
def test_a_game_that_does_not_answer_proves_nothing(games, source, code):
    games.chain.rpc("anvil_setCode", games.anchor_state_registry, _ONE + "60205ff3")
    games.chain.rpc("anvil_setCode", NO_GAME, code)
    assert refusal(source, NO_GAME) == ("NotClaimed", NO_GAME, BLOCK)
    games.chain.rpc("anvil_setCode", NO_GAME, _CLAIM + "60205ff3")
    source.send("record", NO_GAME, PASSER_ROOT, HEADER)


def test_gas_to_record_a_block_of_a_dispute_game_is_as_expected(games, source):
    before = header_of(BLOCK - 1)
    first = settled(games, output_root(STATE_ROOT, PASSER_ROOT, keccak(before)))
    source.send("record", first, PASSER_ROOT, before)
    gas = int(source.send("record", settled(games), PASSER_ROOT, HEADER)["gasUsed"], 16)
    assert 140_000 < gas < 143_000, gas
