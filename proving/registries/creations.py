"""Creation of contracts at addresses that depend on nothing but their code (EIP-1014), whoever creates them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils import timezone
from eth_utils.address import to_canonical_address, to_checksum_address
from eth_utils.crypto import keccak
from rlp import encode

from chains.chains_file import Chain
from chains.contract_artifacts import (
    DEPLOYER,
    DEPLOYER_CODE,
    DEPLOYER_COST,
    DEPLOYER_SIGNER,
    DEPLOYER_TRANSACTION,
    create2_address,
    load_artifact,
)
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.node_errors import Reverted
from chains.nodes.rpc import RpcClient, result
from chains.prices import GasPrices, Load
from config.configured_chains import get_rpc
from proving.models import LIVE_STATES, Transaction, TransactionState
from proving.money import market_fees
from proving.packing.packs import Intent
from proving.registries.deployments import revert_reason
from proving.sending import orders, signers, signing, transaction_monitor
from proving.sending.signers import Unsent
from proving.working import destination_prices, heads, lanes
from proving.working.lanes import LaneKind, LaneLost, LaneName
from queries.waits import WaitReason, wait

# Wei that a transaction may cost at most, by geth's usual `--rpc.txfeecap`.
_USUAL_FEE_CAP = 10**18


class DeploymentError(Exception):
    """The registry can't be deployed, or its attesters can't be changed. The message is a sentence with the reason."""


@dataclass(frozen=True)
class Creation:
    """A contract that anybody can create, at the same address (EIP-1014), by the deterministic deployer."""

    name: str
    """That of its artifact."""
    code: bytes
    """Its creation code, including constructor arguments."""
    salt: int = 0

    @property
    def contract(self) -> str:
        """Return the contract's name without the artifact's folder."""
        return self.name.rpartition("/")[2]

    @property
    def address(self) -> str:
        return create2_address(self.code, self.salt)

    @property
    def data(self) -> bytes:
        """Return the calldata for the deployer."""
        return self.salt.to_bytes(32) + self.code

    def least_limit(self, prices: GasPrices) -> int:
        """Return the lowest gas limit with which the contract can be created, without the constructor's execution."""
        return prices.creation_limit(DEPLOYER, self.data, len(load_artifact(self.name).runtime))

    def intent(self, prices: GasPrices) -> Intent:
        """Return the transaction that creates the contract."""
        gas = prices.creation_gas(DEPLOYER, self.data, len(load_artifact(self.name).runtime))
        return Intent(DEPLOYER, self.data, least=Load(execution=gas - prices.before_execution(DEPLOYER, self.data)))


def missing_of(creations: Sequence[Creation], rpc: RpcClient) -> list[Creation]:
    """Return the contracts that don't exist yet. Raises `ChainError`."""
    codes = rpc.answers([questions.code(creation.address) for creation in creations])
    return [creation for creation, code in zip(creations, codes, strict=True) if not code]


def create(chain: Chain, creations: Sequence[Creation], tell: Callable[[str], None]) -> None:
    """Create the contracts that don't exist yet, and wait until all exist. Monitor transactions if no worker does.

    The constructor of the last one may call the others. An operator who creates the same contracts at the same time
    doesn't matter. Raises `DeploymentError`, and `ChainError`.
    """
    rpc = get_rpc(chain.id)
    begun: set[str] = set()
    why: WaitReason | None = None
    stands: WaitReason | None = None
    for _ in transaction_monitor.monitor_for(chain):
        missing = missing_of(creations, rpc)
        ready = missing[:-1] or missing
        # Transactions of a key that chains.toml no longer has may never be mined.
        live = Transaction.objects.filter(
            signer__chain_id=chain.id,
            signer__address__in=signing.senders(chain),
            to=DEPLOYER,
            state__in=LIVE_STATES,
            data__in=[creation.data for creation in creations],
        )
        if not missing and not live.exists():
            return
        if (first := live.order_by("nonce").first()) and first.waits_for and first.waits_for != why:
            why = first.waits_for
            tell(why.for_operators)
        was_standing, stands = stands is not None, standing(chain, first) if first else None
        if stands and not was_standing:
            tell(str(stands))
        if not missing or (under_way := live.filter(data__in=[creation.data for creation in ready])).exists():
            continue
        if begun.issuperset(creation.address for creation in ready):
            raise DeploymentError("The deploying transactions did not create the contracts; run the command again.")
        if _require_deployer(chain, rpc):
            _require_room(rpc, missing)
            if too_dear := _why_above_fee_cap(rpc, ready):
                tell(too_dear)
            begun |= _begin(chain, ready, under_way)
    seconds = transaction_monitor.WAIT_SECONDS
    if not begun and why is None:
        names = ", ".join(creation.contract for creation in missing)
        raise DeploymentError(f"For {seconds} s nothing could be sent to create {names}; run it again.")
    because = " ".join(reason.for_operators for reason in (why, stands) if reason)
    raise DeploymentError(
        f"The deploying transactions were not confirmed within {seconds} s. {because} The service has stored them: run "
        f"the command again to go on waiting."
    )


def standing(chain: Chain, tx: Transaction) -> WaitReason | None:
    """Return a sentence if the chain stands still, so that the transaction isn't mined, or isn't final."""
    heads.recent(chain, get_rpc(chain.id))
    is_mined, alone = tx.state != TransactionState.PENDING, Transaction.objects.filter(pk=tx.pk)
    return heads.standing(chain, alone, is_mined=is_mined, at=timezone.now())


def _begin(chain: Chain, creations: Sequence[Creation], live: QuerySet[Transaction]) -> set[str]:
    """Store and broadcast the transactions that create contracts. Return the addresses; empty: try again.

    Raises `DeploymentError`.
    """
    if no_signer := signers.why_none(chain):
        raise DeploymentError(f"{no_signer} To deploy, name one in chains.toml. You may remove it afterwards.")
    rpc = get_rpc(chain.id)
    prices = destination_prices.find(rpc)
    try:
        sent = send(chain, [creation.intent(prices) for creation in creations], live)
    except Reverted:
        # Another operator has created a contract, or a node lags, or a constructor refuses. The deployer hides why.
        for creation in creations:
            _require_constructed(rpc, creation)
        return set()
    return {creation.address for creation in creations[: len(sent)]}


def _require_room(rpc: RpcClient, creations: Sequence[Creation]) -> None:
    """Raise `DeploymentError` if a block of the chain has no room for one of the creations."""
    destination_prices.find(rpc)
    prices = destination_prices.of(rpc, rpc.head())
    for creation in creations:
        if (gas := creation.least_limit(prices)) > prices.max_gas:
            too_large = wait("transaction_too_large", gas=gas, most=prices.max_gas)
            raise DeploymentError(f"{creation.contract} can't be created. {too_large}")


def _why_above_fee_cap(rpc: RpcClient, creations: Sequence[Creation]) -> str:
    """Return a sentence if geth, with its usual settings, refuses to take one of the creations. Empty if it doesn't."""
    prices, market = destination_prices.of(rpc), market_fees(rpc)
    for creation in creations:
        gas = creation.least_limit(prices)
        if (cost := gas * market.offer_for(gas).max_fee_per_gas) > _USUAL_FEE_CAP:
            most = f"above {rpc.chain.cost(_USUAL_FEE_CAP)} unless --rpc.txfeecap allows it"
            return (
                f"Creating {creation.contract} may cost {rpc.chain.cost(cost)} now. geth takes no transaction {most}."
            )
    return ""


def _require_constructed(rpc: RpcClient, creation: Creation) -> None:
    """Raise `DeploymentError` if the contract's constructor refuses with a reason."""
    try:
        rpc.call("eth_call", {"data": hex_data(creation.code)}, "latest")
    except Reverted as reverted:
        if (reason := revert_reason(reverted.data)).name:
            raise DeploymentError(f"{creation.contract} can't be created: {reason}.") from None


def _require_deployer(chain: Chain, rpc: RpcClient) -> bool:
    """Return whether the chain has the deterministic deployer. Broadcast its published transaction if it is paid for.

    Raises `DeploymentError` if it isn't.
    """
    code = rpc.code(DEPLOYER)
    if code == DEPLOYER_CODE:
        return True
    if code:
        raise DeploymentError(f"{chain.label} has other code than the deterministic deployer's at {DEPLOYER}.")
    if rpc.nonce(DEPLOYER_SIGNER):
        raise DeploymentError(
            f"{chain.label} can never have the deterministic deployer at {DEPLOYER}: the nonce of its published "
            "transaction is used."
        )
    if rpc.balance(DEPLOYER_SIGNER) >= DEPLOYER_COST:
        (answer,) = rpc.ask([questions.raw_transaction(DEPLOYER_TRANSACTION)])
        rpc.sent(DEPLOYER_TRANSACTION, answer)
        return False
    raise DeploymentError(
        f"{chain.label} has no deterministic deployer at {DEPLOYER}. Send {chain.cost(DEPLOYER_COST)} to "
        f"{DEPLOYER_SIGNER}, and run the command again, which then broadcasts the deployer's published transaction."
    )


def send(chain: Chain, intents: Sequence[Intent], live: QuerySet[Transaction]) -> Sequence[Transaction]:
    """Store and broadcast transactions, the first ones that money suffices for. Empty: others must be confirmed first.

    No transaction is sent while one is `live`. Raises `DeploymentError`, and `ChainError`.
    """
    # If another worker takes the lane meanwhile, nothing is reserved.
    with suppress(LaneLost), lanes.hold(LaneName(LaneKind.DESTINATION, chain.id)) as lane:
        if lane is None or live.exists():
            return ()
        (outcome,) = orders.submit_all(chain, lane, [orders.Order(intents)])
        match result(outcome):
            case orders.Sent(transactions):
                return transactions
            case Unsent(is_brief=True):
                return ()
            case Unsent(reason):
                raise DeploymentError(reason.for_operators)
    return ()


def contract_address(sender: str, nonce: int) -> str:
    """Return the address of the contract that `sender` creates with this nonce (Yellow Paper, section 7)."""
    return to_checksum_address(keccak(encode([to_canonical_address(sender), nonce]))[12:])
