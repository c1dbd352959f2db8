"""The only place that signs with the keys of signers, and that broadcasts: all that costs money goes through here."""

import logging
from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from eth_account.signers.local import LocalAccount

from chains import questions
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.rpc import ChainError, FeeTooLow, InsufficientFunds, NonceTooLow, ReplacementUnderpriced, RpcClient
from config import logs
from proving import stops
from proving.models import SignedTransaction, Transaction
from proving.transactions.fees import OfferedFees
from proving.transactions.intents import Refused

logger = logging.getLogger(__name__)


def senders(chain: Chain) -> tuple[str, ...]:
    """Return addresses of the accounts that send on this chain now, in the file's order. Raises `SignerError`."""
    return tuple(account.address for account in chain.accounts())


def sign(
    chain: Chain, tx: Transaction, fees: OfferedFees, *, is_new: bool = False, cancel_with: int | None = None
) -> SignedTransaction | Refused:
    """Sign and store one version; with `cancel_with`, a gas limit, one that does nothing but use up the nonce.

    `Refused` where it is stopped; one that `is_new` also where its connection is. Inside the caller's database
    transaction.
    """
    is_cancellation = cancel_with is not None
    account = _account(chain, tx.signer.address)
    if stopped := stops.why_not_signed(tx, is_new=is_new):
        return Refused(stopped)
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": chain.id,
        "nonce": tx.nonce,
        "gas": cancel_with if is_cancellation else tx.gas_limit,
        "maxFeePerGas": fees.max_fee_per_gas,
        "maxPriorityFeePerGas": fees.max_priority_fee_per_gas,
        "value": 0,
        "data": b"" if is_cancellation else bytes(tx.data),
    }
    if is_cancellation:
        fields["to"] = account.address
    elif tx.to:
        fields["to"] = tx.to
    signed = account.sign_transaction(fields)
    return SignedTransaction.objects.create(
        transaction=tx,
        hash=hex_data(signed.hash),
        raw=bytes(signed.raw_transaction),
        max_fee_per_gas=fees.max_fee_per_gas,
        max_priority_fee_per_gas=fees.max_priority_fee_per_gas,
        is_cancellation=is_cancellation,
        gas_limit=cancel_with,
    )


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
    problem = for_operators = ""
    try:
        rpc.sent(bytes(version.raw), answer)
    except NonceTooLow:
        pass  # One version of it is mined already; its receipt will tell.
    except ReplacementUnderpriced:
        problem = "The node wants higher fees for the replacement."
    except FeeTooLow:
        problem = "The node wants higher fees."
    except InsufficientFunds:
        problem = "The signer can't pay for it."
    except ChainError as error:
        problem, for_operators = str(error), error.for_operators
    if problem:
        logger.warning("broadcasting %s: %s", version.hash, for_operators or problem)
    else:
        if version.broadcast_at is None:
            logger.info("broadcast %s", version.hash)
        SignedTransaction.objects.filter(pk=version.pk).update(broadcast_at=timezone.now())
    if problem != version.transaction.last_error:
        version.transaction.last_error = problem
        version.transaction.save(update_fields=["last_error"])


def _account(chain: Chain, address: str) -> LocalAccount:
    account = next((one for one in chain.accounts() if one.address == address), None)
    assert account is not None, "the nonce is another account's"
    return account
