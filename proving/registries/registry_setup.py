"""Deployment of a connection's facts registry, its cost, and changes of attesters. An interrupted run is continued."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import IntegrityError, transaction
from django.utils import timezone
from eth_abi.abi import decode
from eth_utils.crypto import keccak

from chains import rollups
from chains.attestation import Domain, attester_set_message, ordered_attesters, recover
from chains.beacon.jumps import BeaconChain
from chains.chains_file import Chain, Connection
from chains.contract_artifacts import NO_CONTRACT, load_artifact
from chains.nodes.node_errors import Reverted, RpcRefused
from chains.nodes.rpc import RpcClient
from config.configured_chains import get_chains, get_rpc
from config.database import statements
from proving import connections, sources
from proving.connections import OpenConnection
from proving.models import LIVE_STATES, FactsRegistry, Transaction, TransactionState
from proving.money import market_fees
from proving.packing.packs import GAS_MARGIN, Intent
from proving.registries import balance_costs, creations, deployments, replacing
from proving.registries.creations import Creation, DeploymentError, contract_address
from proving.registries.deployments import Call, call, creation_code, revert_reason
from proving.sending import signing, transaction_monitor
from proving.sources import beacon_roots
from proving.working import destination_prices, lanes
from proving.working.lanes import LaneKind, LaneLost, LaneName

logger = logging.getLogger(__name__)

# PUSH0 PUSH0 PUSH0 MCOPY STOP
_COPIES_NOTHING = "0x5f5f5f5e00"
# Maximum gas of a constructor.
_CONSTRUCTOR = 60_000
# The number of balances that the estimate of a signer's first funding covers.
_BALANCES = 20
_ATTESTED = "AttestedBlockHashSource"
# The block hash source that creates the beacon history of its registry.
_CREATES_HISTORY = beacon_roots.SOURCE.contract
# Maximum number of a registry's addresses that are tried where they have other code.
_SALTS = 16


def deploy(
    destination: int,
    source: int,
    *,
    replace: bool = False,
    wait_seconds: float = replacing.WAIT_SECONDS,
    tell: Callable[[str], None] = lambda _: None,
) -> FactsRegistry:
    """Create the contracts of a connection that don't exist yet, and record its registry. Continue an interrupted run.

    A usable registry is replaced when its facts are final. `tell` gets a sentence about each wait when it begins.
    Raises `DeploymentError`, also after ten minutes without confirmation, or `wait_seconds` without finality, and
    `chains.nodes.rpc.ChainError` if no node answers.
    """
    connection = get_chains().connection(source, destination)
    if connection is None:
        raise DeploymentError(f"chains.toml has no connection from chain {source} to chain {destination}.")
    chain = get_chains().chain(destination)
    replaced: FactsRegistry | None = None
    if row := deployments.deployed(destination, source):
        deployments.check(row)
        if not replace and row.refused:
            raise DeploymentError(row.refusal.for_operators)
        if not row.refused and not (replace and deployments.why_replaceable(row)):
            return row
        _require_same_chain(chain)
        replaced = row
    _require_fit(chain, connection)
    planned = _planned(connection, passes_over=replace)
    creations.create(chain, planned.creations, tell)
    _require_attesters(connection, planned.row)
    if replaced and replaced.address == planned.row.address:
        # A reorg had removed the contract, or a node had lagged. It is the same contract again.
        return _usable(replaced)
    if not replaced:
        return _recorded(planned.row)
    try:
        with lanes.seize(LaneName(LaneKind.CONNECTION, destination, source)) as lane:
            # Another command may have replaced it before this one held the lane.
            replaced.refresh_from_db()
            if replaced.replaced_at:
                raise DeploymentError(f"Another command has already replaced the facts registry at {replaced}.")
            if not replaced.refused:
                replacing.await_final(lane, replaced, wait_seconds, tell)
            return _recorded(planned.row, partial(replacing.retire, lane, replaced))
    except LaneLost:
        raise DeploymentError(
            "Another process works on the connection now, so nothing was replaced. Run the command again."
        ) from None


def deploy_reader(
    destination: int,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> str:
    """Create the `FactsReader` of the registries in use on a destination, if it isn't there. Return its address.

    `tell` also gets a sentence about each registry that is left out, because it must not be used. Raises
    `DeploymentError`, and `chains.nodes.rpc.ChainError` if no node answers.
    """
    chain = get_chains().chain(destination)
    for row in deployments.connected(destination):
        deployments.check(row)
        if row.refused:
            tell(f"Chain {row.source_chain_id} is left out. {row.refusal}")
    if not (reader := deployments.reader(destination)):
        raise DeploymentError(
            f"{chain.label} has no usable facts registry, or more than the {deployments.MOST_OF_A_READER} of a reader."
        )
    creation = Creation("FactsReader", reader.creation)
    creations.create(chain, [creation], tell)
    _require_code(chain, creation, reader.code)
    for row in deployments.connected(destination):
        deployments.check(row)
    return reader.address


@dataclass(frozen=True)
class StateProver:
    """A state prover over a registry, and its pointer (ERC-7888). Both are deployed."""

    registry: FactsRegistry
    address: str
    """It is the same on every chain that has a copy."""
    pointer: str
    code_hash: bytes
    by_hash: bool
    """Commitments are hashes of blocks, not state roots."""


def deploy_prover(
    destination: int,
    source: int,
    *,
    by_hash: bool = False,
    copies: Collection[int] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> StateProver:
    """Create a state prover over a connection's registry and its pointer, and copies of the prover on other chains.

    What exists already is found. `tell` and errors are as in `deploy`; raises `UnknownChain`, too.
    """
    chain, others = get_chains().chain(destination), [get_chains().chain(copy) for copy in copies]
    if (row := deployments.deployed(destination, source)) is None:
        raise DeploymentError(deployments.not_deployed(destination, source).for_operators)
    _usable(row)
    (prover, code), (pointer, of_pointer) = planned_prover(destination, source, row.address, by_hash=by_hash)
    creations.create(chain, [prover, pointer], tell)
    _require_code(chain, prover, code)
    _require_code(chain, pointer, of_pointer)
    for other in others:
        _require_cancun(other)
        creations.create(other, [prover], tell)
        _require_code(other, prover, code)
    return StateProver(row, prover.address, pointer.address, keccak(code), by_hash)


def planned_prover(
    destination: int, source: int, registry: str, *, by_hash: bool = False
) -> tuple[tuple[Creation, bytes], tuple[Creation, bytes]]:
    """Return a state prover over the registry at this address, and its pointer, each with the code that it gets."""
    name, pointer_name = "package/RegistryStateProver", "package/FixedStateProverPointer"
    prover = Creation(name, creation_code(name, destination, source, registry, int(by_hash)))
    pointer = Creation(pointer_name, creation_code(pointer_name, prover.address))
    code = load_artifact(name).deployed(
        homeChainId=destination, targetChainId=source, registry=int(registry, 16), kind=int(by_hash)
    )
    of_pointer = load_artifact(pointer_name).deployed(implementationAddress=int(prover.address, 16))
    return (prover, code), (pointer, of_pointer)


def _require_code(chain: Chain, creation: Creation, code: bytes) -> None:
    """Raise `DeploymentError` if a contract that was created doesn't have this code."""
    if get_rpc(chain.id).code(creation.address) != code:
        raise DeploymentError(f"There is other code than {creation.contract} at {creation.address} on {chain.label}.")


def _require_same_chain(chain: Chain) -> None:
    """Raise `DeploymentError` if the chain has lost a signer's final transaction, so it isn't the same chain."""
    final = Transaction.objects.filter(signer__chain_id=chain.id, state=TransactionState.FINAL)
    of_signers = final.filter(signer__address__in=signing.senders(chain)).order_by("-nonce")
    newest = of_signers.values_list("signer__address", "nonce").first()
    if newest and get_rpc(chain.id).nonce(newest[0], "latest") <= newest[1]:
        raise DeploymentError(
            f"{chain.label} knows nothing of transaction {newest[1]} of {newest[0]}, which was final: the chain was "
            f"started again, or its node is behind. A new chain needs an empty database."
        )


def _require_fit(chain: Chain, connection: Connection) -> None:
    """Raise `DeploymentError` if the connection's contracts would be of no use on the chain."""
    _require_cancun(chain)
    if connection.parent_id is not None:
        try:
            deployments.noted(chain.id, connection.parent_id)
        except deployments.Unusable as error:
            # The contract stores the address of the parent chain's registry.
            raise DeploymentError(error.reason.for_operators) from None
    if connection.block_hash_source == "beacon-roots":
        root = beacon_roots.newest_held(get_rpc(connection.source_id), get_rpc(chain.id))
        if isinstance(root, sources.NotYet):
            # On a destination with its own beacon chain, that chain's blocks would be accepted as the source chain's.
            raise DeploymentError(root.reason.for_operators)


@dataclass(frozen=True)
class _PlannedRegistry:
    row: FactsRegistry
    """It isn't stored."""
    creations: Sequence[Creation]
    """The contracts that it needs, in the order in which they are created."""


def _planned(connection: Connection, *, passes_over: bool) -> _PlannedRegistry:
    """Plan the registry of a connection.

    If other code is at the registry's address, and `passes_over` is set, another address is taken. Raises
    `DeploymentError` if it isn't set.
    """
    retired = FactsRegistry.objects.filter(
        destination_chain_id=connection.destination_id, source_chain_id=connection.source_id
    ).exclude(replaced_at=None)
    for salt in range(_SALTS):
        contracts = planned_creations(connection, salt)
        by_name = {creation.name: creation.address for creation in contracts}
        block_hash_source = by_name[sources.of(connection).contract]
        row = FactsRegistry(
            destination_chain_id=connection.destination_id,
            source_chain_id=connection.source_id,
            address=by_name["FactsRegistry"],
            block_hash_source=block_hash_source,
            multicall=by_name["Multicall"],
            beacon_history=by_name.get("GloasBeaconHistory") or _created_history(connection, block_hash_source),
            history_window=get_chains().chain(connection.source_id).history_window,
        )
        code = get_rpc(connection.destination_id).code(row.address)
        if code in {b"", deployments.expected_code(row)} and not retired.filter(address=row.address).exists():
            return _PlannedRegistry(row, contracts)
        if not passes_over:
            raise DeploymentError(
                f"Chain {connection.destination_id} has other code at {row.address}, the address of this registry, or "
                "it was replaced. Does the node answer wrongly? With --replace, another address is taken."
            )
    raise DeploymentError(f"{_SALTS} addresses of this registry have other code. Does the node answer wrongly?")


def _require_attesters(connection: Connection, row: FactsRegistry) -> None:
    """Raise `DeploymentError` if the contract that was found has other attesters than chains.toml.

    Its address follows from its first attesters. These may have put others into their places.
    """
    if connection.block_hash_source != "attested":
        return
    rpc = get_rpc(connection.destination_id)
    members, threshold = (
        rpc.eth_call(*call(_ATTESTED, row.block_hash_source, name)) for name in ("attesters", "threshold")
    )
    configured = {attester.address.lower() for attester in connection.attesters}
    if set(decode(["address[]"], members)[0]) != configured or int.from_bytes(threshold) != connection.threshold:
        raise DeploymentError(
            f"The contract of these attesters is at {row.block_hash_source} already, and has other attesters or "
            "another threshold by now. Name its present attesters, or other first attesters, in chains.toml."
        )


def _recorded(row: FactsRegistry, retire: Callable[[], None] = lambda: None) -> FactsRegistry:
    """Store the registry as the one in use, and `retire` the replaced one, in one database transaction.

    Return the row that another process has stored meanwhile, if one has.
    """

    def store() -> None:
        with transaction.atomic():
            retire()
            ends = {"destination_chain_id": row.destination_chain_id, "source_chain_id": row.source_chain_id}
            # An older version stored the row before it created the contracts.
            FactsRegistry.in_use.filter(**ends, deployed_at=None).delete()
            row.pk, row.deployed_at = None, timezone.now()
            row.save(force_insert=True)

    try:
        statements.retried(store)
    except IntegrityError:
        if (others := deployments.deployed(row.destination_chain_id, row.source_chain_id)) is None:
            raise
        row = others
    else:
        logger.info("deployed %s", row)
    return _usable(row)


def _usable(row: FactsRegistry) -> FactsRegistry:
    """Compare the registry's code, and return it. Raises `DeploymentError` if it must not be used."""
    deployments.check(row)
    if row.refused:
        raise DeploymentError(row.refusal.for_operators)
    return row


def _require_cancun(chain: Chain) -> None:
    """Raise `DeploymentError` if the chain lacks an opcode of the contracts."""
    try:
        get_rpc(chain.id).call("eth_call", {"data": _COPIES_NOTHING}, "latest")
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        raise DeploymentError(
            f"{chain.label} lacks MCOPY (EIP-5656, Cancun), which the contracts use, so it can't be a destination."
        ) from None


def change_attesters(
    destination: int,
    source: int,
    addresses: Sequence[str],
    threshold: int,
    signatures: Sequence[bytes],
) -> list[str]:
    """Change the attesters and wait until that is confirmed. Return the new ones in the contract's order.

    Raises `DeploymentError`, `chains.nodes.rpc.ChainError`.
    """
    try:
        connection = connections.open_connection(destination, source)
    except deployments.Unusable as why:
        raise DeploymentError(why.reason.for_operators) from None
    if connection.config.block_hash_source != "attested":
        raise DeploymentError(f"Chain {source} is not attested on chain {destination}.")
    try:
        ordered = ordered_attesters(addresses, threshold)
    except ValueError as error:
        raise DeploymentError(str(error)) from None
    to, data = _signed_change(connection, ordered, threshold, signatures)
    chain = get_chains().chain(destination)
    try:
        sent = _submit(chain, Intent(to, data, extends=connection.registry.row_id))
    except Reverted as reverted:
        raise DeploymentError(f"The contract refuses the change: {revert_reason(reverted.data)}.") from None
    for _ in transaction_monitor.monitor_for(chain):
        sent.refresh_from_db()
        if sent.state not in LIVE_STATES:
            if not sent.succeeded:
                raise DeploymentError(f"The transaction {sent.label} failed.")
            return ordered
    stands = creations.standing(chain, sent) or ""
    raise DeploymentError(
        f"The change was not confirmed within {transaction_monitor.WAIT_SECONDS} s. Its transaction is stored and "
        f"continues. {stands}".rstrip()
    )


def _submit(chain: Chain, intent: Intent) -> Transaction:
    """Store and broadcast a transaction. Wait for pending transactions first."""
    for _ in transaction_monitor.monitor_for(chain):
        if sent := creations.send(chain, [intent], Transaction.objects.none()):
            return sent[-1]
    raise DeploymentError(
        f"For {transaction_monitor.WAIT_SECONDS} s other transactions had precedence, so none was sent; run the "
        f"command again."
    )


def _signed_change(
    connection: OpenConnection, ordered: Sequence[str], threshold: int, signatures: Sequence[bytes]
) -> Call:
    """Return the call that makes the change. Raises `DeploymentError` unless enough current attesters signed it."""
    contract = connection.registry.block_hash_source
    nonce, members, needed = (
        connection.destination_rpc.eth_call(*call(_ATTESTED, contract, function))
        for function in ("nonce", "attesters", "threshold")
    )
    message = attester_set_message(
        Domain(connection.config.destination_id, contract), ordered, threshold, int.from_bytes(nonce)
    )
    by_signer = {}
    for signature in signatures:
        try:
            by_signer[recover(message, signature).lower()] = signature
        except ValueError as error:
            raise DeploymentError(f"One of the signatures is {error}.") from None
    strangers = sorted(by_signer.keys() - set(decode(["address[]"], members)[0]))
    if strangers:
        raise DeploymentError(
            f"These signers are not attesters of {contract} now: {', '.join(strangers)}. Check that they signed the "
            f"same attesters and threshold, and the nonce {int.from_bytes(nonce)}."
        )
    if len(by_signer) < int.from_bytes(needed):
        raise DeploymentError(
            f"Signatures of {int.from_bytes(needed)} attesters are needed; here are {len(by_signer)}."
        )
    joined = b"".join(by_signer[signer] for signer in sorted(by_signer))
    return call(_ATTESTED, contract, "changeAttesters", ordered, threshold, joined)


# --- Cost -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needed:
    """Amounts of money that a signer needs, in wei, at current prices."""

    deploying: int  # upper bound
    each_balance: int
    least: int  # minimum balance to deploy
    in_all: int  # to deploy and then prove `_BALANCES` balances

    def to_send(self, balance: int) -> int:
        """Return the amount to send to a signer, rounded up to two digits."""
        lacking = self.in_all - balance
        unit: int = 10 ** max(0, len(str(lacking)) - 2)
        return -(-lacking // unit) * unit


def needed(chain: Chain, missing: Collection[Connection], rpc: RpcClient) -> Needed:
    """Return the money that a signer of `chain` needs to deploy registries for the connections `missing`, and to prove.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    market = market_fees(rpc)
    price = market.offer.max_fee_per_gas
    prices, deploying = destination_prices.find(rpc), 0
    planned = {each.address: each for connection in missing for each in planned_creations(connection)}
    for creation in creations.missing_of([*planned.values()], rpc):
        gas = int((creation.least_limit(prices) + _CONSTRUCTOR) * GAS_MARGIN)
        data = rollups.data_cost(rpc, len(creation.data), gas)
        deploying += (gas + data.gas) * price + data.wei
    each = max(map(balance_costs.expected_gas, missing), default=0) * price
    least = chain.minimum_signer_balance_wei + deploying
    return Needed(deploying, each, least, least + _BALANCES * each)


def planned_creations(
    connection: Connection, salt: int = 0, *, earlier: BeaconChain | None = None, may_jump: bool = True
) -> list[Creation]:
    """Return the contracts of a connection's registry in the order of their creation, the registry last.

    If `earlier` is given, return what versions before 0.5.0, whose contracts have no Gloas, created for it. Unless
    `may_jump`, return what a version created that didn't know the source chain's beacon chain.
    """
    source, chain = sources.of(connection), get_chains().chain(connection.source_id)
    name, arguments = source.contract, source.arguments(connection)
    history, beacon_chain = "GloasBeaconHistory", chain.beacon_chain and chain.beacon_chain.arguments
    if earlier:
        history, beacon_chain = "BeaconHistory", earlier.arguments_without_gloas
        if name == _CREATES_HISTORY:
            name, arguments = "BeaconBlockHashSource", (beacon_chain,)
    first = Creation(name, creation_code(name, *arguments))
    beacon_history = _created_history(connection, first.address)
    histories = []
    if beacon_chain and may_jump and not beacon_history:
        histories = [Creation(history, creation_code(history, beacon_chain))]
        beacon_history = histories[0].address
    of_registry = (connection.source_id, first.address, chain.history_window, beacon_history or NO_CONTRACT)
    registry = Creation("FactsRegistry", creation_code("FactsRegistry", *of_registry), salt)
    # Each registry has one of its own, because it tells for which registry a transaction was sent.
    multicall = Creation("Multicall", creation_code("Multicall"), int(registry.address, 16))
    return [first, multicall, *histories, registry]


def has_derived_address(connection: Connection, registry: FactsRegistry) -> bool:
    """Return whether a registry's address follows from its code and arguments alone.

    Whoever deploys it gets this address, on any chain. Attesters are among the arguments, and so is the registry of a
    rollup's parent chain: its address must follow, too.
    """
    if connection.parent_id is not None:
        parent = get_chains().connection(connection.parent_id, connection.destination_id)
        row = deployments.deployed(connection.destination_id, connection.parent_id)
        if parent is None or row is None or not has_derived_address(parent, row):
            return False
    chain = get_chains().chain(connection.source_id).beacon_chain
    # The earlier contracts may have been created before the fork's slot was known.
    earlier = [chain, chain.before_gloas] if chain else []
    may_jump = bool(registry.beacon_history)
    planned = (planned_creations(connection, earlier=each, may_jump=may_jump) for each in (None, *earlier))
    return any(creations[-1].address == registry.address for creations in planned)


def _created_history(connection: Connection, block_hash_source: str) -> str:
    """Return the address of the beacon history that the block hash source creates; empty if it creates none."""
    if sources.of(connection).contract != _CREATES_HISTORY:
        return ""
    # The first contract that a contract creates is at its nonce 1 (EIP-161).
    return contract_address(block_hash_source, 1)
