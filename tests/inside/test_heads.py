"""Proofs of a block stay when its header arrives again."""

from config.configured_chains import get_rpc
from proving.models import AccountProof
from proving.reconcile import rows
from proving.reconcile.decide import TakeHeader
from queries.models import Block
from tests.service import ALICE, a_key, request, submit, work_until_done


def test_proofs_stay_where_the_header_that_is_stored_comes_again(service):
    """Admission may store a block's header while a reconcile requests it."""
    work_until_done(submit(a_key(), request(ALICE, block=service.head())))
    block = Block.objects.get()
    header = get_rpc(31337).header(block.number)
    assert header is not None
    rows._take_header(block, TakeHeader(header))
    assert AccountProof.objects.filter(block=block).exists()
