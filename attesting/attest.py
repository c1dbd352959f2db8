"""What this attester vouches for: final blocks on whose hash all of its nodes agree, and one hash for each for ever."""

import logging

from django.db import transaction
from eth_account.signers.local import LocalAccount

from attesting import nodes
from attesting.models import SignedBlock
from chains.attestation import Attestation, Question, sign
from chains.config import Chain, SignerError, UnknownChain
from chains.errors import ChainError
from config.chains import get_chains

logger = logging.getLogger(__name__)


class Refused(Exception):
    """Nothing was signed: a stable code, and a sentence for whoever asked."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def own_account() -> LocalAccount:
    """The account that this installation attests with. Raises `ChainsError`, `SignerError`."""
    signer = get_chains().attester
    if signer is None:
        raise SignerError("The chains file has no [attester] table, which says where the attester's key is.")
    return signer.account()


def attest(question: Question) -> Attestation:
    """Raises `Refused`."""
    number = question.block_number
    try:
        chain = get_chains().chain(question.source_chain_id)
    except UnknownChain as error:
        raise Refused("unknown_chain", f"This attester can't tell: {error}") from None
    block_hash = _agreed_hash(chain, number)
    remembered = _remember(chain, number, block_hash)
    if remembered != block_hash:
        logger.critical(
            "CONFLICT: block %d of %s is 0x%s now, and this attester has signed 0x%s for it. Nothing more is signed "
            "for this number. Either a final block was reorganised, or the nodes lied once or lie now: find out which.",
            *(number, chain.label, block_hash.hex(), remembered.hex()),
        )
        raise Refused("conflict", f"This attester has signed another hash for block {number} of chain {chain.id}.")
    account = own_account()
    return Attestation(account.address, block_hash, sign(account, question.message(block_hash)))


def _agreed_hash(chain: Chain, number: int) -> bytes:
    """The block's hash, where every node that answers says that it is final and has this hash. Raises `Refused`."""
    try:
        views = nodes.views(chain, number)
    except nodes.NoFinality as error:
        raise Refused("no_finality", str(error)) from None
    except ChainError:
        # What is wrong with which node is logged, and no stranger's concern.
        raise Refused("unavailable", f"No node of chain {chain.id} answers this attester.") from None
    final = min(view.final for view in views)
    if number > final:
        raise Refused(
            "not_final", f"Block {number} of chain {chain.id} is not final yet: the newest final block is {final}."
        )
    block_hash, *others = {view.block_hash for view in views}
    if block_hash is None or others:
        logger.error("The nodes of %s disagree about block %d.", chain.label, number)
        raise Refused("unavailable", f"The nodes of this attester disagree about block {number} of chain {chain.id}.")
    return block_hash


def _remember(chain: Chain, number: int, block_hash: bytes) -> bytes:
    """The hash that is signed for this number from now on: this one, or the one that was stored before it.

    It is committed when this returns, so that no signature is made that a killed process could forget.
    """
    with transaction.atomic(durable=True):
        signed, _ = SignedBlock.objects.get_or_create(
            source_chain_id=chain.id, number=number, defaults={"hash": f"0x{block_hash.hex()}"}
        )
    return bytes.fromhex(signed.hash.removeprefix("0x"))
