"""Deployment of a connection's facts registry, its cost, and changes of attesters. An interrupted run is continued."""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now
from django.utils import timezone
from eth_abi.abi import decode
from eth_utils.address import to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak
from rlp import encode

from chains import rollups
from chains.attestation import Domain, attester_set_message, ordered_attesters, recover
from chains.chains_file import Chain, Connection
from chains.node_errors import Reverted, RpcRefused
from chains.rpc import RpcClient, result
from config.configured_chains import get_chains, get_rpc
from contracts import NO_CONTRACT, load_artifact
from database import statements
from proving import balance_costs, connections, deployments, lanes, sources
from proving.connections import OpenConnection
from proving.deployments import Call, call, creation_code, revert_reason
from proving.lanes import LaneKind, LaneLost, LaneName
from proving.models import LIVE_STATES, FactsRegistry, Transaction, TransactionState
from proving.money import market_fees
from proving.packing import GAS_MARGIN, Intent
from proving.sources import beacon_roots
from proving.transactions import sending, signers, signing, transaction_monitor
from proving.transactions.signers import Unsent
from queries import progress
from queries.models import ADMITTED_STATUSES, Batch, BatchStatus, Block, Query, StepKind
from queries.waits import WaitReason

logger = logging.getLogger(__name__)

# PUSH0 PUSH0 PUSH0 MCOPY STOP
_COPIES_NOTHING = "0x5f5f5f5e00"
# Gas per contract creation, non-zero data byte, 32-byte word of data (EIP-3860) and byte of code (Yellow Paper,
# appendix G).
_CREATION, _BYTE, _WORD, _BYTE_OF_CODE = 53_000, 16, 2, 200
# Maximum gas of a constructor.
_CONSTRUCTOR = 60_000
# A placeholder for an unknown address. It has no zero bytes, because they would cost less.
_UNKNOWN = "0x" + "ff" * 20
# The number of balances that the estimate of a signer's first funding covers.
_BALANCES = 20
_ATTESTED = "AttestedBlockHashSource"


class DeploymentError(Exception):
    """The registry can't be deployed, or its attesters can't be changed. The message is a sentence with the reason."""


def deploy(
    destination: int,
    source: int,
    *,
    replace: bool = False,
    seconds: float = transaction_monitor.WAIT_SECONDS,
    tell: Callable[[str], None] = lambda _: None,
) -> FactsRegistry:
    """Deploy the registry of a connection, and wait until it is confirmed. Continue an interrupted deployment.

    `tell` gets a sentence about each wait when it begins. Raises `DeploymentError`, also after `seconds` without
    confirmation, and `chains.rpc.ChainError` if no node answers.
    """
    connection = get_chains().connection(source, destination)
    if connection is None:
        raise DeploymentError(f"chains.toml has no connection from chain {source} to chain {destination}.")
    chain = get_chains().chain(destination)
    row = FactsRegistry.in_use.filter(destination_chain_id=destination, source_chain_id=source).first()
    replaced: FactsRegistry | None = None
    if row and row.deployed_at:
        deployments.check(row)
        if row.refused and not replace:
            raise DeploymentError(str(row.refusal))
        if row.refused or (replace and deployments.why_no_jump(row)):
            _require_same_chain(chain)
            replaced, row = row, None
    if row is None:
        if no_signer := signers.why_none(chain):
            raise DeploymentError(f"{no_signer} To deploy, name one in chains.toml; then it may be left out again.")
        row = _begin(chain, connection, replaced, seconds)
    if row.deployed_at is None:
        _finish(chain, row, seconds, tell)
    return row


def _require_same_chain(chain: Chain) -> None:
    """Raise `DeploymentError` if the chain has lost a signer's final transaction, so it isn't the same chain."""
    final = Transaction.objects.filter(signer__chain_id=chain.id, state=TransactionState.FINAL)
    of_signers = final.filter(signer__address__in=signing.senders(chain)).order_by("-nonce")
    newest = of_signers.values_list("signer__address", "nonce").first()
    if newest and get_rpc(chain.id).nonce(newest[0], "latest") <= newest[1]:
        raise DeploymentError(
            f"{chain.label} knows nothing of transaction {newest[1]} of {newest[0]}, which was final: it was started "
            "anew, or its node is behind. A chain that was started anew takes an empty database."
        )


def _retire(row: FactsRegistry) -> None:
    """Retire a registry in the caller's database transaction. Its row stays, and batches that are DONE stay DONE.

    The facts of open batches are proven again to the next registry. Until the facts of DONE batches are final, workers
    check whether a reorg removes them from this registry (`Block.checked_number`).
    """
    blocks = Block.objects.filter(destination_chain_id=row.destination_chain_id, source_chain_id=row.source_chain_id)
    # A worker that loses its lane can't store its current observations, which are about the old registry.
    lanes.take_away(LaneName(LaneKind.CONNECTION, row.destination_chain_id, row.source_chain_id))
    statements.lock(blocks)
    admitted = Query.objects.filter(block__in=blocks, batch__status__in=ADMITTED_STATUSES)
    begun = admitted.exclude(step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE])
    progress.lock_batches(admitted.values_list("pk", flat=True))
    # A batch that was DONE meanwhile, by a clock that may be ahead, is DONE before the registry is replaced.
    proven = Query.objects.filter(batch=OuterRef("pk"), block__in=blocks)
    done = Batch.objects.filter(Exists(proven), status=BatchStatus.DONE)
    last = done.order_by("-finished_at").values_list("finished_at", flat=True).first()
    row.replaced_at, row.due_at = max(filter(None, (timezone.now(), last))), None
    row.replaced_because = row.refused or deployments.why_no_jump(row)
    row.save(update_fields=["replaced_at", "replaced_because", "due_at"])
    blocks.update(is_checkpoint=False)
    of_done = Query.objects.filter(block=OuterRef("pk"), batch__status=BatchStatus.DONE)
    blocks.filter(~Exists(of_done)).update(checked_number=None, checked_hash="")
    progress.reopen(
        list(begun.values_list("pk", flat=True)),
        StepKind.BLOCKHASH_AVAILABLE,
        reason=f"The facts registry at {row.address} is replaced by a new one, to which all is proven again.",
    )
    blocks.filter(Exists(admitted.filter(block=OuterRef("pk")))).update(due_at=Now())


def _begin(chain: Chain, connection: Connection, replaced: FactsRegistry | None, seconds: float) -> FactsRegistry:
    """Store the registry's row, and store and broadcast the transactions that create its other contracts.

    The replaced registry is retired in the same database transaction.
    """
    _require_cancun(chain)
    if connection.parent_id is not None:
        try:
            deployments.noted(chain.id, connection.parent_id)
        except deployments.Unusable as error:
            # The contract stores the address of the parent chain's registry.
            raise DeploymentError(str(error)) from None
    takes_roots = connection.block_hash_source == "beacon-roots"
    if takes_roots:
        root = beacon_roots.newest_told(get_rpc(connection.source_id), get_rpc(chain.id))
        if isinstance(root, sources.NotYet):
            # On a destination with its own beacon chain, that chain's blocks would be accepted as the source chain's.
            raise DeploymentError(str(root.reason))
    source_chain = get_chains().chain(connection.source_id)
    beacon_chain = source_chain.beacon_chain
    # The block hash source for beacon roots creates a beacon history itself.
    creates_history = beacon_chain and not takes_roots
    created: list[FactsRegistry] = []

    def store(sender: str, first_nonce: int) -> None:
        if replaced:
            _retire(replaced)
        block_hash_source = contract_address(sender, first_nonce)
        # The first contract that a contract creates is at its nonce 1 (EIP-161).
        beacon_history = contract_address(*((sender, first_nonce + 2) if creates_history else (block_hash_source, 1)))
        # The database transaction may be repeated. Only its last run counts.
        created[:] = [
            FactsRegistry.objects.create(
                destination_chain_id=chain.id,
                source_chain_id=connection.source_id,
                block_hash_source=block_hash_source,
                multicall=contract_address(sender, first_nonce + 1),
                beacon_history=beacon_history if beacon_chain else "",
                history_window=source_chain.history_window,
            )
        ]

    skipped = {"FactsRegistry", *(() if creates_history else ("BeaconHistory",))}
    intents = [Intent("", code) for name, code in _creation_codes(connection) if name not in skipped]
    try:
        _submit(chain, intents, seconds, store)
    except Reverted as reverted:
        raise DeploymentError(f"The contracts can't be created: {revert_reason(reverted.data)}.") from None
    return created[0]


def _require_cancun(chain: Chain) -> None:
    """Raise `DeploymentError` if the chain lacks an opcode of the contracts."""
    try:
        get_rpc(chain.id).call("eth_call", {"data": _COPIES_NOTHING}, "latest")
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        raise DeploymentError(
            f"{chain.label} does not run MCOPY (EIP-5656, of Cancun), which the contracts use, so it is no destination."
        ) from None


def _create_registry(chain: Chain, row: FactsRegistry, seconds: float) -> None:
    """Create the registry itself. Its constructor calls other contracts, which must exist first."""
    of_registry = (row.source_chain_id, row.block_hash_source, row.history_window, row.beacon_history or NO_CONTRACT)
    code = creation_code("FactsRegistry", *of_registry)

    def store(sender: str, nonce: int) -> None:
        row.address = contract_address(sender, nonce)
        if not FactsRegistry.objects.filter(pk=row.pk, address="").update(address=row.address):
            raise DeploymentError("Another process deploys this registry at the same time; run it again.")

    try:
        _submit(chain, [Intent("", code)], seconds, store)
    except Reverted as reverted:
        reason = revert_reason(reverted.data)
        if reason.name:
            raise DeploymentError(f"The registry can't be created: {reason}.") from None
        # A revert without a reason comes from a node that lags and lacks the other contracts. The caller tries again.


def _finish(chain: Chain, row: FactsRegistry, seconds: float, tell: Callable[[str], None]) -> None:
    """Wait until the contracts exist, and monitor the transactions in case no worker runs."""
    rpc = get_rpc(chain.id)
    live = Transaction.objects.filter(signer__chain_id=chain.id, to="", state__in=LIVE_STATES)
    why: WaitReason | None = None
    for _ in transaction_monitor.monitor_for(chain, seconds):
        if not row.address and all(rpc.code(address) for address in _asked_first(row)):
            _create_registry(chain, row, seconds)
        elif not live.exists():
            if row.address and all(rpc.code(address) for address in (row.address, row.multicall, *_asked_first(row))):
                row.deployed_at = timezone.now()
                row.save(update_fields=["deployed_at"])
                logger.info("deployed %s", row)
                deployments.check(row)
                if row.refused:
                    raise DeploymentError(str(row.refusal))
                return
            row.delete()
            raise DeploymentError("The deploying transactions did not create the contracts; run it again.")
        if (first := live.order_by("nonce").first()) and first.waits_for != why:
            why = first.waits_for
            tell(str(why))
    raise DeploymentError(
        f"The deploying transactions were not confirmed within {seconds:.0f} s. {why or ''} They are stored: run it "
        "again to go on waiting for them."
    )


def _asked_first(row: FactsRegistry) -> list[str]:
    """Return the addresses of the contracts that the registry's constructor calls."""
    return [row.block_hash_source, *([row.beacon_history] if row.beacon_history else [])]


def _submit(
    chain: Chain,
    intents: Sequence[Intent],
    seconds: float,
    and_reserve: Callable[[str, int], None] | None = None,
) -> Transaction:
    """Store and broadcast all transactions, and return the last. Wait for pending transactions first."""
    for _ in transaction_monitor.monitor_for(chain, seconds):
        # If another worker takes the lane meanwhile, nothing is reserved. The loop tries again.
        with suppress(LaneLost), lanes.hold(LaneName(LaneKind.DESTINATION, chain.id)) as lane:
            if lane is None:
                continue
            (outcome,) = sending.submit_all(chain, lane, [sending.Order(intents, and_reserve)])
            match result(outcome):
                case sending.Sent(transactions):
                    return transactions[-1]
                case Unsent(is_brief=True):
                    pass  # Pending transactions must be confirmed first.
                case Unsent(reason):
                    raise DeploymentError(str(reason))
    raise DeploymentError(f"For {seconds:.0f} s other transactions were in the way, so none was sent; run it again.")


def contract_address(sender: str, nonce: int) -> str:
    """Return the address of the contract that `sender` creates with this nonce (Yellow Paper, section 7)."""
    return to_checksum_address(keccak(encode([to_canonical_address(sender), nonce]))[12:])


def change_attesters(
    destination: int,
    source: int,
    addresses: Sequence[str],
    threshold: int,
    signatures: Sequence[bytes],
    *,
    seconds: float = transaction_monitor.WAIT_SECONDS,
) -> list[str]:
    """Change the attesters and wait until that is confirmed. Return the new ones in the contract's order.

    Raises `DeploymentError`, `chains.rpc.ChainError`.
    """
    try:
        connection = connections.open_connection(destination, source)
    except deployments.Unusable as why:
        raise DeploymentError(str(why)) from None
    if connection.config.block_hash_source != "attested":
        raise DeploymentError(f"Chain {source} is not attested on chain {destination}.")
    try:
        ordered = ordered_attesters(addresses, threshold)
    except ValueError as error:
        raise DeploymentError(str(error)) from None
    to, data = _signed_change(connection, ordered, threshold, signatures)
    chain = get_chains().chain(destination)
    try:
        sent = _submit(chain, [Intent(to, data, extends=connection.registry.row_id)], seconds)
    except Reverted as reverted:
        raise DeploymentError(f"The contract refuses the change: {revert_reason(reverted.data)}.") from None
    for _ in transaction_monitor.monitor_for(chain, seconds):
        sent.refresh_from_db()
        if sent.state not in LIVE_STATES:
            if not sent.succeeded:
                raise DeploymentError(f"The transaction {sent.label} failed.")
            return ordered
    raise DeploymentError(
        f"The change was not confirmed within {seconds:.0f} s; its transaction is stored and goes on."
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
    codes = [code for connection in missing for code in _creation_codes(connection)]
    deploying = 0
    for name, code in codes:
        gas = int(_creation_gas(name, code) * GAS_MARGIN)
        data = rollups.data_cost(rpc, len(code), gas)
        deploying += (gas + data.gas) * price + data.wei
    each = max(map(balance_costs.expected_gas, missing), default=0) * price
    least = chain.minimum_signer_balance_wei + deploying
    return Needed(deploying, each, least, least + _BALANCES * each)


def _creation_codes(connection: Connection) -> list[tuple[str, bytes]]:
    """Return the name and the creation code of each contract of a registry. Addresses aren't known yet."""
    source = sources.of(connection)
    of_registry = (connection.source_id, _UNKNOWN, connection.window, NO_CONTRACT)
    codes = [
        (source.contract, creation_code(source.contract, *source.arguments(connection))),
        ("Multicall", creation_code("Multicall")),
    ]
    beacon_chain = get_chains().chain(connection.source_id).beacon_chain
    if beacon_chain:
        # The creation counts, although another installation may already have created this contract.
        codes.append(("BeaconHistory", creation_code("BeaconHistory", beacon_chain.arguments)))
        of_registry = (*of_registry[:-1], _UNKNOWN)
    return [*codes, ("FactsRegistry", creation_code("FactsRegistry", *of_registry))]


def _creation_gas(name: str, code: bytes) -> int:
    data = len(code) * _BYTE + math.ceil(len(code) / 32) * _WORD
    return _CREATION + data + len(load_artifact(name).runtime) * _BYTE_OF_CODE + _CONSTRUCTOR
