"""The only place that signs with the keys of signers, and that broadcasts: all that costs money goes through here."""

import logging
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django.utils import timezone
from eth_account.signers.local import LocalAccount

from chains import questions
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.node_errors import ChainError, FeeTooLow, InsufficientFunds, NonceTooLow, ReplacementUnderpriced
from chains.rpc import RpcClient
from config import logs
from proving import money, stops
from proving.models import SignedTransaction, Transaction
from proving.money import OfferedFees
from proving.transactions.signers import Unsent
from queries import waits
from queries.waits import wait

logger = logging.getLogger(__name__)


def senders(chain: Chain) -> tuple[str, ...]:
    """Return addresses of the accounts that send on this chain now, in the file's order. Raises `SignerError`."""
    return tuple(account.address for account in chain.accounts())


def sign(
    chain: Chain, tx: Transaction, offer: OfferedFees, portions: Counter[str], *, least: int, is_new: bool = False
) -> SignedTransaction | Unsent:
    """Sign and store one version, at what is offered or what the bounds allow, but not below the `least` wei per gas.

    Stops, the chain's cap and limit, the limits of users and the fees of batches are asked here and nowhere else
    (`proving.money`). `portions` are the parts of its gas limit that batches cause. Stops of connections matter
    only where it `is_new`. Inside the caller's database transaction, in which nobody else signs on the chain.
    """
    if stopped := stops.why_not_signed(tx, is_new=is_new):
        return Unsent(stopped)
    cap = money.cap(chain, is_new=is_new)
    if cap < least:
        return Unsent(wait("gas_above_cap", chain=chain.id, cap=str(chain.max_fee_per_gas_gwei)))
    bounds = money.bounds(chain, tx, portions)
    if too_low := [bound for bound in bounds if bound.price < least or bound.left < bound.data_fee]:
        whose = frozenset[str]().union(*(bound.batches for bound in too_low))
        return Unsent(min(too_low, key=attrgetter("price")).reason(chain, least), whose)
    price = min([cap, *(bound.price for bound in bounds)])
    if is_new and (even := money.even_price(chain, portions)) is not None:
        price = min(price, max(even, least))
    fees = offer.at_most(price)
    return _store(chain, tx, portions, fees, to=tx.to, data=bytes(tx.data))


def cancel(
    chain: Chain, tx: Transaction, offer: OfferedFees, portions: Counter[str], *, least: int, gas: int
) -> SignedTransaction | Unsent:
    """Sign and store a version that does nothing but use up the nonce, with this gas limit, as `sign` does.

    Of the bounds only the chain's hold.
    """
    if stopped := stops.why_not_signed(tx, is_new=False):
        return Unsent(stopped)
    most = money.cancellation_price(chain, gas, tx)
    if most < least:
        return Unsent(wait("gas_above_cancellation", chain=chain.id))
    return _store(chain, tx, portions, offer.at_most(most), to=tx.signer.address, cancel_with=gas)


def _store(
    chain: Chain,
    tx: Transaction,
    portions: Counter[str],
    fees: OfferedFees,
    *,
    to: str,
    data: bytes = b"",
    cancel_with: int | None = None,
) -> SignedTransaction:
    """Sign and store a version, and count its cost: what is signed next is bounded with it."""
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": chain.id,
        "nonce": tx.nonce,
        "gas": tx.gas_limit if cancel_with is None else cancel_with,
        "maxFeePerGas": fees.max_fee_per_gas,
        "maxPriorityFeePerGas": fees.max_priority_fee_per_gas,
        "value": 0,
        "data": data,
    }
    signed = _account(chain, tx.signer.address).sign_transaction(fields | ({"to": to} if to else {}))
    version = SignedTransaction.objects.create(
        transaction=tx,
        hash=hex_data(signed.hash),
        raw=bytes(signed.raw_transaction),
        max_fee_per_gas=fees.max_fee_per_gas,
        max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
        is_cancellation=cancel_with is not None,
        gas_limit=cancel_with,
    )
    # With all of its versions as they are now.
    stored = Transaction.objects.defer("data").prefetch_related("versions").get(pk=tx.pk)
    stored.data_fee, stored.expected_data_fee, stored.expected_gas = tx.data_fee, tx.expected_data_fee, tx.expected_gas
    stored.reserve()
    stored.save(update_fields=["data_fee", "expected_data_fee", "expected_gas", "reserved_gwei"])
    money.divide({stored: portions})
    return version


def broadcast(rpc: RpcClient, versions: Sequence[SignedTransaction]) -> None:
    """Hand the stored bytes to the node. What it says is noted, not raised: the chain decides, later."""
    going = [one for one in versions if not stops.why_not_signed(one.transaction, is_new=False)]
    asked = [questions.raw_transaction(bytes(one.raw)) for one in going]
    for version, question in zip(going, asked, strict=True):
        if version.broadcast_at is not None:
            # The process that took it before may have kept it.
            rpc.tell_all(question)
    for version, answer in zip(going, rpc.ask(asked), strict=True):
        with logs.about(transaction=version.hash, chain=rpc.chain.id):
            _note(rpc, version, answer)


def _note(rpc: RpcClient, version: SignedTransaction, answer: bytes | ChainError) -> None:
    problem, for_operators = None, ""
    try:
        rpc.sent(bytes(version.raw), answer)
    except NonceTooLow:
        pass  # One version of it is mined already; its receipt will tell.
    except ReplacementUnderpriced:
        problem = wait("replacement_fees_too_low")
    except FeeTooLow:
        problem = wait("fees_too_low")
    except InsufficientFunds:
        problem = wait("signer_cant_pay")
    except ChainError as error:
        problem, for_operators = waits.fault(error), error.for_operators
    if problem:
        logger.warning("broadcasting %s: %s", version.hash, for_operators or problem)
    else:
        if version.broadcast_at is None:
            logger.info("broadcast %s", version.hash)
        SignedTransaction.objects.filter(pk=version.pk).update(broadcast_at=timezone.now())
    if version.transaction.last_error or problem != version.transaction.error:
        version.transaction.error, version.transaction.last_error = problem, ""
        version.transaction.save(update_fields=["error", "last_error"])


def _account(chain: Chain, address: str) -> LocalAccount:
    account = next((one for one in chain.accounts() if one.address == address), None)
    assert account is not None, "the nonce is another account's"
    return account
