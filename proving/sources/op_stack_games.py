"""The L1 of an OP Stack chain vouches for blocks whose dispute games are resolved there.

The contract is `OpStackGamesBlockHashSource.sol`. About every hour a game claims the output root of one block. Days
later the chain's AnchorStateRegistry reports that the claim is valid. Any valid game may be used, however old. A block
is recorded by its header, and paths lead from it to all earlier blocks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.nodes.node_errors import InvalidReply
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from proving.connections import OpenConnection
from proving.packing.gas import Amount
from proving.registries.deployments import Call, call
from proving.sources import (
    NotYet,
    Recorder,
    Start,
    behind,
    ends,
    named,
    not_there,
    read_words,
    why_unknown,
    words,
)
from queries.waits import Value, wait

# Index of the header field that has the storage root of L2ToL1MessagePasser since Isthmus. Source: OP Stack
# specification.
_MESSAGE_PASSER_ROOT = 16
# Seconds by which a sequencer's clock may be ahead of L1 (Fjord: at most 1,800).
_AHEAD = 3600
# Games in each step of a search by time, games that are read together, and maximum number of such reads.
_PROBES, _GAMES, _LOOKS = 16, 32, 4
# Maximum number of valid claims in one read that are compared with the nodes' headers.
_CLAIMS = 8
# The call in a clone of a game's implementation: PUSH20, GAS, DELEGATECALL. The clone's arguments follow.
_CLONE = re.compile(rb"\x73(.{20})\x5a\xf4", re.DOTALL)


class OpStackGames(Recorder):
    contract = "OpStackGamesBlockHashSource"
    title = "OP Stack: blocks that dispute games have settled on the destination"
    recording_gas = Amount(106_900, 156_900)

    def trust(self, connection: Connection) -> str:
        below = named(connection.destination_id)
        return (
            f"The proofs of {named(connection.source_id)} on {below}, its guardian, who can set false games aside in "
            f"time, and whoever can upgrade its contracts there. A block counts some days after a game about it, or "
            f"about a later block, has ended."
        )

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        return connection.source_id, connection.anchor_state_registry

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        config = connection.config
        address, newest = read_words(connection, self.contract, "anchorStateRegistry", "newest")
        registry, recorded = to_checksum_address(address[12:]), int.from_bytes(newest)
        if registry != config.anchor_state_registry:
            configured = str(config.anchor_state_registry)
            reason = wait("other_anchor_registry", source=config.source_id, registry=registry, configured=configured)
            return NotYet(reason)
        if target <= recorded <= target + config.window:
            return Start(recorded)
        game = _nearest(connection, target)
        if isinstance(game, NotYet):
            return Start(recorded) if recorded >= target else game
        number = game.header.number
        return Start(min(number, recorded) if recorded >= target else number)

    def record(self, connection: OpenConnection, header: Header) -> Start | NotYet:
        nearest = _nearest(connection, header.number)
        if isinstance(nearest, NotYet):
            return nearest
        game, below = nearest.address, connection.config.destination_id
        if unknown := why_unknown(connection, below, lambda: implementations(connection) | _of_game(connection, game)):
            return NotYet(unknown)
        if nearest.header.hash != header.hash:
            return NotYet(wait("game_to_come", block=header.number, source=connection.config.source_id))
        source, root = connection.registry.block_hash_source, _message_passer_root(header)
        record = call(self.contract, source, "record", nearest.address, root, header.encode())
        return Start(header.number, (record,), self.gas(connection.config).expected)

    def newest(self, connection: OpenConnection) -> int | NotYet:
        rpc, registry = connection.destination_rpc, str(connection.config.anchor_state_registry)
        (anchor,) = _words(rpc, [_call(registry, "anchorGame()")])
        game = to_checksum_address(anchor[12:])
        anchor_games = _looked_at(rpc, registry, [(game, 0)]) if any(anchor) else []
        settled = next(
            (_settled(connection, anchor_game) for anchor_game in anchor_games if anchor_game.is_valid), None
        )
        if settled:
            return settled if isinstance(settled, NotYet) else settled.header.number
        return _paused(connection) or NotYet(wait("no_anchor_game", registry=registry, **ends(connection.config)))


@dataclass(frozen=True)
class _Game:
    """A game, and the number of the OP Stack block in its claim."""

    address: str
    made_at: int  # unix seconds
    number: int
    is_valid: bool


@dataclass(frozen=True)
class _SettledGame:
    """A block, and the game whose valid claim is the block's output root."""

    address: str
    header: Header


def _nearest(connection: OpenConnection, target: int) -> _SettledGame | NotYet:
    """Return the nearest block at or above `target` that has a valid claim. Raises `NodeUnavailable`."""
    config, head = connection.config, connection.source_rpc.head().number
    since = connection.source_rpc.known_header(target).timestamp - _AHEAD
    waiting: _Game | None = None
    other: _Game | None = None
    lacking: NotYet | None = None
    for games in _games_since(connection, since):
        about = sorted((game for game in games if target <= game.number <= head), key=attrgetter("number"))
        for game in [game for game in about if game.is_valid][:_CLAIMS]:
            settled = _settled(connection, game)
            if isinstance(settled, _SettledGame):
                return settled
            lacking, other = lacking or settled, other if settled else other or game
        waiting = waiting or next((game for game in about if not game.is_valid), None)
    if other:
        return NotYet(wait("game_contradicts", game=other.address, of_game=other.number, **ends(config)))
    if obstacle := lacking or _paused(connection):
        return obstacle
    if waiting:
        values: dict[str, Value] = {"game": waiting.address, "of_game": waiting.number, "block": target, **ends(config)}
        blacklist = _call(str(config.anchor_state_registry), "disputeGameBlacklist(address)", waiting.address)
        (is_blacklisted,) = _words(connection.destination_rpc, [blacklist])
        if any(is_blacklisted):
            return NotYet(wait("game_blacklisted", **values))
        age = connection.destination_rpc.head().timestamp - waiting.made_at
        return NotYet(wait("game_not_valid", age=age, **values))
    return NotYet(wait("no_game", block=target, **ends(config)))


def _settled(connection: OpenConnection, game: _Game) -> _SettledGame | NotYet | None:
    """Return the game's block if the claim is that block's output root, according to the nodes' header.

    Return `NotYet` if the nodes lack the block.
    """
    header = connection.source_rpc.header(game.number)
    if header is None:
        return not_there(connection.config, game.number)
    if len(header.fields) <= _MESSAGE_PASSER_ROOT:
        return None
    (claim,) = _words(connection.destination_rpc, [_call(game.address, "rootClaim()")])
    output = keccak(bytes(32) + header.state_root + _message_passer_root(header) + header.hash)
    return _SettledGame(game.address, header) if claim == output else None


def _message_passer_root(header: Header) -> bytes:
    return header.fields[_MESSAGE_PASSER_ROOT]


def _paused(connection: OpenConnection) -> NotYet | None:
    """Return a wait if the registry is paused, because then no claim is valid. None otherwise."""
    registry = str(connection.config.anchor_state_registry)
    (word,) = _words(connection.destination_rpc, [_call(registry, "paused()")])
    return NotYet(wait("games_paused", registry=registry, **ends(connection.config))) if any(word) else None


def _games_since(connection: OpenConnection, seconds: int) -> Iterator[Sequence[_Game]]:
    """Yield games that were made after this time and aren't retired, oldest first, in several lists."""
    rpc, registry = connection.destination_rpc, str(connection.config.anchor_state_registry)
    questions = [_call(registry, "disputeGameFactory()"), _call(registry, "retirementTimestamp()")]
    factory, retired_at = _words(rpc, questions)
    address = to_checksum_address(factory[12:])
    (game_count,) = _words(rpc, [_call(address, "gameCount()")])
    count = int.from_bytes(game_count)
    # Games up to the retirement time are no longer valid.
    first = _first_after(rpc, address, count, max(seconds, int.from_bytes(retired_at)))
    for start in range(first, min(count, first + _GAMES * _LOOKS), _GAMES):
        yield _looked_at(rpc, registry, _games_at(rpc, address, range(start, min(count, start + _GAMES))))


def _first_after(rpc: RpcClient, factory: str, count: int, seconds: int) -> int:
    """Return the index of the first game that was made after this time. Games are ordered by time."""
    low, high = 0, count
    while low < high:
        places = sorted({low + (high - low) * part // _PROBES for part in range(_PROBES)})
        for place, (_, made_at) in zip(places, _games_at(rpc, factory, places), strict=True):
            if made_at > seconds:
                high = place
                break
            low = place + 1
    return low


def _games_at(rpc: RpcClient, factory: str, places: Sequence[int]) -> list[tuple[str, int]]:
    """Return the address and time of the games at these indexes."""
    answers = rpc.eth_calls([_call(factory, "gameAtIndex(uint256)", place) for place in places])
    read = [answer for answer in answers if isinstance(answer, bytes) and len(answer) == 96]
    if len(read) < len(answers):
        raise InvalidReply(f"The factory {factory} doesn't return its games.")
    return [(to_checksum_address(each[76:]), int.from_bytes(each[32:64])) for each in read]


def _looked_at(rpc: RpcClient, registry: str, games: Sequence[tuple[str, int]]) -> list[_Game]:
    """Return each game with its block number and the validity of its claim. Games without a number are left out."""
    validity_calls = [_call(registry, "isGameClaimValid(address)", game) for game, _ in games]
    answers = rpc.eth_calls([*validity_calls, *(_call(game, "extraData()") for game, _ in games)])
    games_read = []
    for (game, made_at), valid, extra in zip(games, answers[: len(games)], answers[len(games) :], strict=True):
        # The number comes first. Some types of games have more data after it.
        if isinstance(extra, bytes) and len(extra) >= 96:
            is_valid = isinstance(valid, bytes) and int.from_bytes(valid) == 1
            games_read.append(_Game(game, made_at, int.from_bytes(extra[64:96]), is_valid))
    return games_read


def implementations(connection: OpenConnection) -> dict[str, str]:
    """Return the addresses of the code of the AnchorStateRegistry, its factory and new games, by name.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    rpc, registry = connection.destination_rpc, str(connection.config.anchor_state_registry)
    factory, game_type = _words(rpc, [_call(registry, "disputeGameFactory()"), _call(registry, "respectedGameType()")])
    address = to_checksum_address(factory[12:])
    (game,) = _words(rpc, [_call(address, "gameImpls(uint32)", int.from_bytes(game_type))])
    present = behind(rpc, {"AnchorStateRegistry": registry, "DisputeGameFactory": address})
    return present | {f"games of type {int.from_bytes(game_type)}": to_checksum_address(game[12:])}


def _of_game(connection: OpenConnection, game: str) -> dict[str, str]:
    """Return the address of a game's code by the game's name. It may differ from that of new games."""
    clone = _CLONE.search(connection.destination_rpc.code(game))
    return {f"the game {game}": to_checksum_address(clone[1]) if clone else game}


def _call(to: str, signature: str, *arguments: object) -> Call:
    types = signature[signature.index("(") + 1 : -1]
    data = function_signature_to_4byte_selector(signature) + encode([types] if types else [], arguments)
    return to, data


def _words(rpc: RpcClient, calls: Sequence[Call]) -> list[bytes]:
    """Return the answer to each call of a contract, which is one word. Raises the errors of `sources.words`."""
    contract, _ = calls[0]
    return words(rpc, calls, f"{contract} on {rpc.chain.label} isn't the OP Stack's contract.")


SOURCE = OpStackGames()
