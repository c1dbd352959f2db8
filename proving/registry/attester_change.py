"""Changes the attesters of a connection's block hash source, as those of now have signed it."""

from collections.abc import Sequence

from eth_abi.abi import decode

from chains.attestation import Domain, attester_set_message, ordered_attesters, recover
from chains.chains_file import Chain
from chains.rpc import Reverted
from config.configured_chains import get_chains
from proving import connections
from proving.models import LIVE_STATES, Transaction
from proving.registry import deployments
from proving.registry.contract import call, revert_reason
from proving.transactions import sending, transaction_monitor
from proving.transactions.intents import Intent, NoRoom, NotPaid, Order, Refused, Sent, UnderWay

_CONTRACT = "AttestedBlockHashSource"


class ChangeRefused(Exception):
    """The attesters can't be changed so. The message is a sentence that says why."""


def change(
    destination: int,
    source: int,
    addresses: Sequence[str],
    threshold: int,
    signatures: Sequence[bytes],
    *,
    seconds: float = transaction_monitor.WAIT_SECONDS,
) -> list[str]:
    """Change the attesters. Returns the new ones, in the contract's order, once the change is confirmed.

    Raises `ChangeRefused`, `chains.rpc.ChainError`.
    """
    try:
        connection = connections.open_connection(destination, source)
    except deployments.Unusable as why:
        raise ChangeRefused(str(why)) from None
    if connection.config.block_hash_source != "attested":
        raise ChangeRefused(f"Chain {source} is not attested on chain {destination}.")
    try:
        ordered = ordered_attesters(addresses, threshold)
    except ValueError as error:
        raise ChangeRefused(str(error)) from None
    contract = connection.registry.block_hash_source
    nonce, members, needed = (
        connection.destination_rpc.eth_call(*call(_CONTRACT, contract, function))
        for function in ("nonce", "attesters", "threshold")
    )
    message = attester_set_message(Domain(destination, contract), ordered, threshold, int.from_bytes(nonce))
    by_signer = {}
    for signature in signatures:
        try:
            by_signer[recover(message, signature).lower()] = signature
        except ValueError as error:
            raise ChangeRefused(f"One of the signatures is {error}.") from None
    strangers = sorted(by_signer.keys() - set(decode(["address[]"], members)[0]))
    if strangers:
        raise ChangeRefused(
            f"These signers are not attesters of {contract} now: {', '.join(strangers)}. Check that they signed the "
            f"same attesters and threshold, and the nonce {int.from_bytes(nonce)}."
        )
    if len(by_signer) < int.from_bytes(needed):
        raise ChangeRefused(f"Signatures of {int.from_bytes(needed)} attesters are needed; here are {len(by_signer)}.")
    joined = b"".join(by_signer[signer] for signer in sorted(by_signer))
    to, data = call(_CONTRACT, contract, "changeAttesters", ordered, threshold, joined)
    # As what they sign: what another signer sends meanwhile may be mined before it, or after.
    _send(destination, Intent(to, data, extends=connection.registry.row_id), seconds)
    return ordered


def _send(destination: int, intent: Intent, seconds: float) -> None:
    """Send it, and wait until it is confirmed, following the transactions in case no worker runs."""
    chain = get_chains().chain(destination)
    sent: Transaction | None = None
    for _ in transaction_monitor.monitor_for(chain, seconds):
        sent = sent or _submit(chain, intent)
        if sent is None:
            continue
        sent.refresh_from_db()
        if sent.state not in LIVE_STATES:
            if not sent.succeeded:
                raise ChangeRefused(f"The transaction {sent.latest_hash} failed.")
            return
    raise ChangeRefused(f"The change was not confirmed within {seconds:.0f} s; its transaction is stored and goes on.")


def _submit(chain: Chain, intent: Intent) -> Transaction | None:
    """Submit the change, or return None while something is under way that extends the registry's trust."""
    try:
        outcome = sending.submit_all(chain, Order([intent], by_first=True))
    except Reverted as reverted:
        raise ChangeRefused(f"The contract refuses the change: {revert_reason(reverted.data)}.") from None
    match outcome:
        case Sent(transactions):
            (tx,) = transactions
            return tx
        case NoRoom() | UnderWay():
            return None
        case Refused(sentence) | NotPaid(sentence):
            raise ChangeRefused(sentence)
