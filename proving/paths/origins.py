"""Where a jump begins: at a block that the registry trusts, whose header names the root of a beacon block.

The branches themselves come from `proving.jump_branches`. Any block will do that is final and young enough: the state
of the beacon block remembers all periods that were over by then. What is fetched of it serves all later jumps, so the
origin of the last one comes first, for as long as the registry trusts it.
"""

from dataclasses import dataclass, replace

from chains.beacon.jumps import BeaconChain, CannotProve
from chains.header import Header
from chains.packed import OLD_BLOCK, encode_parent_hash
from proving import heads, jump_branches, sources
from proving.connections import OpenConnection
from proving.gas_model.proof_gas import Likely
from proving.models import FactsRegistry
from proving.registry import deployments
from proving.sources import NotYet, Preparation, Start

# The part of a period, in which the newest one counts as not over yet: the slots before its first block may be empty.
_MARGIN = 64
# Of having the registry keep a hash by the header after it, as measured.
_KEPT_GAS = Likely(45_000, 60_000)
# No block hash source vouches for it; a hash that the registry keeps is accepted whatever the number.
_NO_BLOCK = 2**256 - 1


@dataclass(frozen=True)
class Jump:
    """A jump to a block, by an operation of the packed format."""

    target: int
    operation: int
    origin: Header | None = None
    """The header that it begins with. None: it begins with a constant."""
    start: Start | None = None
    """Makes the origin trusted. None: nothing has to."""


def may_jump(connection: OpenConnection, target: Header) -> bool:
    """Return whether a jump to a block may be had now. Asks nothing but the source's head, and that only if it may.

    Raises `NodeUnavailable`.
    """
    source, beacon_chain = connection.source_rpc.chain, connection.beacon_chain
    if beacon_chain is None or jump_branches.why_not(source, target):
        return False
    if jump_branches.operation(source, target) != OLD_BLOCK:
        return True
    return _remembers(beacon_chain, heads.recent(source, connection.source_rpc).latest, target)


def plan(connection: OpenConnection, target: Header) -> Jump | None:
    """Plan the jump to a block that costs least; None where the beacon chain doesn't lead there now.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    if not may_jump(connection, target):
        return None
    rpc, noted = connection.source_rpc, connection.registry.jump_origin
    jump = Jump(target.number, jump_branches.operation(rpc.chain, target))
    if jump.operation != OLD_BLOCK:
        return jump
    if noted is not None and (trusted := _trusted(connection, _usable(connection, [noted], target))):
        return replace(jump, origin=trusted)
    source = sources.of(connection.config)
    # A reorganisation would waste what builds on a younger one. On its own chain, the header after it is final too.
    youngest = heads.recent(rpc.chain, rpc).final - is_own(connection)
    starts = [source.reach(connection, number) for number in (youngest, target.number)]
    usable = _usable(connection, [start.number for start in starts if isinstance(start, Start)], target)
    if trusted := _trusted(connection, usable):
        return replace(jump, origin=trusted)
    return replace(jump, origin=usable[0], start=Start(usable[0].number)) if usable else None


def is_own(connection: OpenConnection) -> bool:
    """Return whether a chain vouches for its own blocks, which it does only for a while."""
    return connection.config.source_id == connection.config.destination_id


def begin(connection: OpenConnection, number: int) -> Start | Preparation | NotYet:
    """Return the block, which `plan` named, with the calls that make it trusted from then on. Raises as `plan`."""
    if not is_own(connection):
        return sources.of(connection.config).begin(connection, number)
    after = connection.source_rpc.known_header(number + 1)
    return Start(number, ((connection.registry.contract.address, encode_parent_hash([after.encode()])),))


def gas(connection: OpenConnection) -> Likely:
    """Return the gas of these calls."""
    return _KEPT_GAS if is_own(connection) else sources.of(connection.config).gas(connection.config)


def leads_to(connection: OpenConnection, origin: Header, target: Header) -> bool:
    """Return whether the state that a header names remembers the block, as far as their times tell."""
    return connection.beacon_chain is not None and _remembers(connection.beacon_chain, origin, target)


def note(registry_id: int, origin: Header) -> None:
    """Note that jumps begin at this block."""
    FactsRegistry.objects.filter(pk=registry_id).exclude(jump_origin=origin.number).update(jump_origin=origin.number)


def _usable(connection: OpenConnection, numbers: list[int], target: Header) -> list[Header]:
    """Return those blocks, as the source chain has them now, that lead to the target."""
    found = connection.source_rpc.headers(numbers) if numbers else []
    return [header for header in found if header is not None and leads_to(connection, header, target)]


def _trusted(connection: OpenConnection, headers: list[Header]) -> Header | None:
    if not headers:
        return None
    asked = [(_NO_BLOCK if is_own(connection) else header.number, header.hash) for header in headers]
    # What is pending may fail, and with it what was sent behind it.
    vouched = deployments.vouches(connection.destination_rpc, connection.registry, asked, at="latest")
    return next((header for header, is_vouched_for in zip(headers, vouched, strict=True) if is_vouched_for), None)


def _remembers(beacon_chain: BeaconChain, origin: Header, target: Header) -> bool:
    try:
        slot, of_target = (beacon_chain.slot_at(header.timestamp) for header in (origin, target))
    except CannotProve:
        return False
    # The header names the beacon block before its own.
    before = slot - 1 - (1 << beacon_chain.period_depth) // _MARGIN
    return before >= 0 and beacon_chain.period(before) > beacon_chain.period(of_target)
