"""Which blocks `latest` and `finalized` become, and that a block to come holds up nothing but its own queries."""

import itertools
from typing import Any

import pytest

from accounts.models import ApiKey
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.admission import admit as admission
from proving.admission.admit import admit
from proving.budget.reservations import Reservation
from proving.models import Transaction
from queries.models import Batch, BatchStatus, Block
from tests.chains.lying_node import ask, error, lying_node
from tests.proving.money import mine_at
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, expire_leases, fresh, submit, work, work_until_done

BALANCE = {"props": ["BALANCE"]}


def submitted(api_key: ApiKey, *, fee: int = 0, **blocks: Any) -> Batch:
    """Submit a batch with these accounts at these selectors, with `_` for their colon."""
    data = {
        selector.replace("_", ":"): {"accounts": dict.fromkeys(accounts, BALANCE)}
        for selector, accounts in blocks.items()
    }
    return submit(api_key, asking(data, fee=fee))


def numbers(batch: Batch) -> list[int | None]:
    return list(batch.queries.order_by("position").values_list("block__number", flat=True))


def admitted(batch: Batch) -> list[bool]:
    return list(batch.queries.order_by("position").values_list("is_admitted", flat=True))


# --- Tags -------------------------------------------------------------------------------------------------------------


def test_a_tag_becomes_the_block_of_the_moment_and_stays_it(service, key):
    service.mine(5)
    batch = submitted(key, latest=[ALICE, BOB], finalized=[ALICE], block_3=[ALICE])
    assert numbers(batch) == [None, None, None, 3]
    service.mine(2)
    head, final = service.head(), int(service.rpc("eth_getBlockByNumber", "finalized", False)["number"], 16)
    assert 3 < final < head
    admit(batch.pk)
    assert numbers(batch) == [head, head, final, 3]
    service.mine(5)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert numbers(batch) == [head, head, final, 3]
    assert [query.selector for query in batch.queries.order_by("position")] == [
        *("latest", "latest", "finalized", "block:3")
    ]


class Killed(BaseException):
    pass


def test_a_kill_after_a_tag_was_fixed_does_not_fix_it_to_another_block(service, key, monkeypatch):
    def kill(*_: object) -> None:
        raise Killed

    batch = submitted(key, latest=[ALICE, BOB])
    head = service.head()
    with monkeypatch.context() as patch:
        patch.setattr(admission, "_decide_about_blocks", kill)
        with pytest.raises(Killed):
            admit(batch.pk)
    service.mine(3)
    expire_leases()
    admit(batch.pk)
    assert numbers(batch) == [head, head]
    assert admitted(batch) == [True, True]


def refusing_finality(url: str) -> Any:
    """Answers of a node that knows no final block."""

    def answer(body: Any) -> Any:
        if isinstance(body, list):
            return [answer(one) for one in body]
        if body["method"] == "eth_getBlockByNumber" and body["params"][0] == "finalized":
            return error(body, -39001, "there is no finality here")
        return ask(url, body)

    return answer


def behind(service: DevChain, settings, *urls: str) -> None:
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(text.replace(f'"{service.url}"', ", ".join(f'"{url}"' for url in urls)))
    forget_chains()


def test_a_chain_that_knows_no_final_block_says_so_and_proves_the_latest(service, key, settings):
    with lying_node(refusing_finality(service.url)) as url:
        behind(service, settings, url)
        batch, other = submitted(key, finalized=[ALICE]), submitted(key, latest=[ALICE])
        admit(batch.pk)
        assert fresh(batch).status == BatchStatus.REJECTED
        assert (batch.rejection_code, batch.rejection_retryable) == ("finalized_unknown", True)
        assert "No node of chain 31337 says" in batch.rejection_reason
        assert batch.rejection_reason.endswith("The node refused (-39001).")
        assert work_until_done(other).status == BatchStatus.DONE


def test_a_node_that_is_down_may_know_the_final_block(service, key, settings):
    with lying_node(refusing_finality(service.url)) as url:
        behind(service, settings, url, "http://127.0.0.1:1")
        batch = submitted(key, finalized=[ALICE])
        admit(batch.pk)
        assert (fresh(batch).status, batch.attempts) == (BatchStatus.RECEIVED, 1)
        assert "The node refused (-39001)." in batch.waiting_for


# --- What is to come --------------------------------------------------------------------------------------------------


def test_what_is_to_come_holds_up_nothing_but_its_own_queries(service, key):
    head = service.head()
    time = int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16) + 30
    blocks: dict[str, Any] = {f"block_{head + 2}": [BOB], f"timestamp_{time}": [CHARLIE], f"block_{head + 4}": [ALICE]}
    batch = submitted(key, latest=[ALICE], **blocks)
    for _ in range(3):
        work()
    done = list(batch.queries.filter(step=None).values_list("position", flat=True))
    assert (done, fresh(batch).status) == ([0], BatchStatus.IN_PROGRESS)
    assert batch.due_at is not None
    said = batch.waiting_for
    assert f"Block {head + 2} of chain 31337 does not exist yet" in said
    assert f"The last one that is waited for is {head + 4}." in said
    assert f"No block of chain 31337 is later than the time {time} yet" in said
    service.mine(max(0, head + 2 - service.head()))
    admit(batch.pk)
    assert admitted(batch)[:2] == [True, True]
    service.rpc("evm_increaseTime", 60)
    service.mine(5)
    assert work_until_done(batch, service).status == BatchStatus.DONE
    assert batch.waiting_for == ""
    assert numbers(batch)[1] == head + 2


def test_only_what_exists_is_admitted_and_each_when_it_does(costly, key):
    """Nothing mines but the test."""
    head = costly.head()
    batch = submitted(key, fee=10**18, **{f"block_{head + ahead}": [ALICE] for ahead in (-1, 1, 2)})
    estimates = [0]
    for count in (1, 2, 3):
        admit(batch.pk)
        assert admitted(batch) == [True] * count + [False] * (3 - count)
        assert Block.objects.filter(due_at__isnull=False).count() == count
        estimates.append(fresh(batch).estimated_gas or 0)
        costly.mine()
    # What was admitted before is not counted again.
    first, *others = [after - before for before, after in itertools.pairwise(estimates)]
    assert others == [pytest.approx(first, rel=0.01)] * 2
    assert (batch.waiting_for, batch.due_at) == ("", None)


def estimate_of(costly: DevChain, *heights: int) -> Reservation:
    """Return what admission estimates for Alice at blocks of these heights above the head."""
    blocks = {f"block_{costly.head() + above}": [ALICE] for above in heights}
    with pytest.MonkeyPatch.context() as patch:
        reckoned: list[Reservation] = []
        patch.setattr(admission, "_fee_too_low", lambda _, needed, *__: reckoned.append(needed))
        admit(submitted(a_key(BOB), fee=10**18, **blocks).pk)
    Batch.objects.all().delete()
    return reckoned[0]


def test_the_fee_must_do_for_what_is_to_come_before_anything_is_sent(costly, key):
    head = costly.head()
    both = estimate_of(costly, 0, 2).wei
    blocks = {f"block_{head}": [ALICE], f"block_{head + 2}": [ALICE]}
    enough, too_little = submitted(key, fee=both, **blocks), submitted(key, fee=both - 1, **blocks)
    for batch in (enough, too_little):
        admit(batch.pk)
    assert (fresh(too_little).status, too_little.rejection_code) == (BatchStatus.REJECTED, "fee_too_low")
    assert (fresh(enough).status, admitted(enough)) == (BatchStatus.ACCEPTED, [True, False])
    # The rest is reserved for, and the first part is sent.
    work()
    assert Transaction.objects.filter(queries__batch=enough).count() == 1


def test_the_budget_must_do_for_what_is_to_come(costly, key, settings):
    head = costly.head()
    settings.DAILY_GAS_BUDGET = estimate_of(costly, 0, 1).gas - 1
    batch = submitted(key, fee=10**18, **{f"block_{head}": [ALICE], f"block_{head + 1}": [ALICE]})
    admit(batch.pk)
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "too_large_for_budget")


def test_what_is_to_come_can_still_be_refused_when_the_first_part_is_paid(costly, key):
    """The batch is rejected as with several source chains, and what was spent and proven stays so."""
    head = costly.head()
    fee = 2 * estimate_of(costly, 0, 20).wei
    batch = submitted(key, fee=fee, **{f"block_{head}": [ALICE], f"block_{head + 20}": [ALICE]})
    for _ in range(3):
        work()
        costly.mine()
    costly.mine(20)
    mine_at(costly, 50)
    admit(batch.pk)
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "fee_too_low")
    assert 0 < batch.spent <= batch.fee
    assert [query.step is None for query in batch.queries.order_by("position")] == [True, False]
