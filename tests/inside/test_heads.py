"""What a process remembers of how far a chain is, and of a block's header."""

from config.configured_chains import get_chains, get_rpc
from proving import heads
from proving.models import AccountProof
from proving.reconcile import rows
from proving.reconcile.decide import TakeHeader
from queries.models import Block
from tests.service import ALICE, a_key, request, submit, work_until_done


def test_a_slow_answer_does_not_take_back_what_was_asked_for_later(service, monkeypatch):
    chain, rpc = get_chains().chain(31337), get_rpc(31337)
    ask = rpc.head

    def slow():
        monkeypatch.setattr(rpc, "head", ask)
        head = ask()
        service.mine()
        heads.read(chain, rpc)
        return head

    monkeypatch.setattr(rpc, "head", slow)
    assert heads.read(chain, rpc).latest.number == service.head() - 1
    remembered = heads._known[rpc].heads
    assert remembered is not None
    assert remembered.latest.number == service.head()


def test_proofs_stay_where_the_header_that_is_stored_comes_again(service):
    """Admission may have stored it while a reconcile was asking for it."""
    work_until_done(submit(a_key(), request(ALICE, block=service.head())))
    block = Block.objects.get()
    header = get_rpc(31337).header(block.number)
    assert header is not None
    rows._take_header(block, TakeHeader(header))
    assert AccountProof.objects.filter(block=block).exists()
