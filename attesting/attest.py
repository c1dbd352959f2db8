"""Attestations: this attester signs the hash of a final block if enough of its nodes agree on the hash.

It signs only one hash for each block number.
"""

import logging

from django.db import transaction
from eth_account.signers.local import LocalAccount

from attesting import node_agreement
from attesting.models import SignedBlock
from chains.attestation import Attestation, AttestationRequest, sign
from chains.chains_file import Chain, UnknownChain
from chains.configured_signers import SignerError
from chains.encoding import hex_data
from config.configured_chains import get_chains
from config.error_answers import Refused

logger = logging.getLogger(__name__)


def own_account() -> LocalAccount:
    """Return the account that signs this installation's attestations. Raises `ChainsError`, `SignerError`."""
    signer = get_chains().attester
    if signer is None:
        raise SignerError("The chains file has no [attester] table, which says where the attester's key is.")
    return signer.account()


def attest(question: AttestationRequest) -> Attestation:
    """Sign the block's hash. Raises `Refused`."""
    number = question.block_number
    try:
        chain = get_chains().chain(question.source_chain_id)
    except UnknownChain as error:
        raise Refused("unknown_chain", f"This attester can't answer: {error}") from None
    block_hash = _agreed_hash(chain, number)
    stored = _store(chain, number, block_hash)
    if stored != block_hash:
        logger.critical(
            "CONFLICT: block %d of %s is %s now, but this attester has signed %s for it. The attester signs nothing "
            "more for this number. Either a final block was reorganised, or the nodes lied once or lie now: find out "
            "which.",
            *(number, chain.label, hex_data(block_hash), hex_data(stored)),
        )
        raise Refused("conflict", f"This attester has signed another hash for block {number} of chain {chain.id}.")
    account = own_account()
    return Attestation(account.address, block_hash, sign(account, question.message(block_hash)))


def _agreed_hash(chain: Chain, number: int) -> bytes:
    """Return the block's hash. Raises `Refused`.

    At least `needed_nodes` of the chain's nodes must report the block as final with this hash. No node may report
    another block with this number, final or not. A node that is behind doesn't count.
    """
    nodes = node_agreement.of(chain)
    views = nodes.views(number)
    hashes = {view.block_hash for view in views if view.block_hash is not None}
    # Until some node reports the block as final, it is normal that nodes have different blocks.
    if len(hashes) > 1 and any(view.final is not None and number <= view.final for view in views):
        reports = (f"{view.host} has {hex_data(view.block_hash)}" for view in views if view.block_hash is not None)
        logger.error("The nodes of %s disagree about block %d: %s.", chain.label, number, ", ".join(reports))
        raise Refused("unavailable", f"The nodes of this attester disagree about block {number} of chain {chain.id}.")
    try:
        final = nodes.newest_final(views)
    except node_agreement.TooFewNodes as error:
        logger.warning("%s: block %d is not signed: %s", chain.label, number, error)
        raise Refused(error.code, str(error)) from None
    if number > final:
        raise Refused(
            "not_final", f"Block {number} of chain {chain.id} is not final yet: the newest final block is {final}."
        )
    (block_hash,) = hashes
    return block_hash


def _store(chain: Chain, number: int, block_hash: bytes) -> bytes:
    """Store the hash, unless another hash is stored for this number. Return the stored hash.

    The hash is committed before anything is signed, so a process that is killed can't forget a hash that it has signed.
    """
    with transaction.atomic(durable=True):
        signed, _ = SignedBlock.objects.get_or_create(
            source_chain_id=chain.id, number=number, defaults={"hash": hex_data(block_hash)}
        )
    return bytes.fromhex(signed.hash.removeprefix("0x"))
