"""The four steps of a batch on a real chain that mines a block for each transaction."""

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import AccountProof, Transaction
from queries.models import BatchStatus, Block, Step, StepKind, StepStatus
from tests import users
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, between, error, lying_node, result
from tests.metrics import value
from tests.proving import chain_state
from tests.service import asking, changed_replies, fresh, reconfigure, request, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

NOBODY = "0x000000000000000000000000000000000000dEaD"
ALL = ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]
EMPTY_TRIE_ROOT = 0x56E81F171BCC55A6FF8345E692C0F86E5B48E01B996CADC001622FB5E363B421
EMPTY_CODE_HASH = 0xC5D2460186F7233C927E7DB2DCC703C0E500B653CA82273B7BFAD8045D85A470


@pytest.mark.story
def test_a_balance_is_proven_through_all_four_steps(service, key):
    block = service.head()
    batch = work_until_done(submit(key, request(users.SIGNER, block=block)), service)
    assert batch.status == BatchStatus.DONE
    assert batch.accepted_at is not None
    assert batch.finished_at is not None
    assert batch.accepted_at <= batch.finished_at
    steps = Step.objects.filter(query__batch=batch).order_by("pk")
    assert [step.kind for step in steps] == list(StepKind)
    assert {step.status for step in steps} == {StepStatus.COMPLETED}
    assert all(step.completed_at and step.started_at <= step.completed_at for step in steps)
    tx = Transaction.objects.exclude(to=DEPLOYER).get()
    assert [step.transaction_hash for step in steps] == ["", "", tx.hash, tx.hash]
    proven = chain_state.field_on_chain(service, users.SIGNER, block, chain_state.AccountField.BALANCE)
    assert (
        proven
        == chain_state.balance_at(service, users.SIGNER, block)
        != chain_state.balance_at(service, users.SIGNER, service.head())
    )


def _erigon(question: Any, reply: Any) -> list[Any]:
    """Return null instead of the proof in an empty trie (erigon pulls 11605 and 17745)."""
    for slot in reply["result"]["storageProof"] if question["method"] == "eth_getProof" else ():
        slot["proof"] = None if slot["proof"] in ([], ["0x80"]) else slot["proof"]
    return [reply]


def _besu(question: Any, reply: Any) -> list[Any]:
    """Leave out the slots of an absent account (besu pull 11082, ethrex issue 2761)."""
    if question["method"] == "eth_getProof" and question["params"][0] == NOBODY:
        reply["result"]["storageProof"] = []
    return [reply]


def _geth(url: str, most: int) -> Callable[[Any], Any]:
    """Answer only the first call of a batch that is too large."""
    refusal = geth_answers.REFUSALS["a batch of too many requests"]
    return lambda body: [error(body[0], *refusal)] if isinstance(body, list) and len(body) > most else ask(url, body)


@pytest.mark.long("erigon")
@pytest.mark.parametrize("node", ["erigon", "besu", "geth"])
def test_proofs_in_the_forms_of_erigon_besu_and_geth_are_proven(service, key, settings, node):
    accounts = [NOBODY, users.ALICE, *(f"0x{number:040x}" for number in range(0xA000, 0xA00C))]
    running = {
        "erigon": between(service.url, _erigon),
        "besu": between(service.url, _besu),
        "geth": lying_node(_geth(service.url, 10)),
    }[node]
    with running as url:
        reconfigure(settings, service.url, url)
        entry = {"props": ["BALANCE"], "slots": ["0x0", "0x7"]}
        body = asking({f"block:{service.head()}": {"accounts": dict.fromkeys(accounts, entry)}})
        assert work_until_done(submit(key, body), service).status == BatchStatus.DONE


@pytest.mark.story
def test_every_field_of_a_contract_is_proven(service, key):
    block, contract = service.head(), chain_state.registry().address
    assert work_until_done(submit(key, request(contract, block=block, props=ALL))).status == BatchStatus.DONE
    proof = service.rpc("eth_getProof", contract, [], hex(block))
    for field, name in zip(chain_state.AccountField, ("nonce", "balance", "storageHash", "codeHash"), strict=True):
        assert chain_state.field_on_chain(service, contract, block, field) == int(proof[name], 16)


def test_an_account_that_does_not_exist_is_proven_to_be_empty(service, key):
    block = service.head()
    assert work_until_done(submit(key, request(NOBODY, block=block, props=ALL))).status == BatchStatus.DONE
    values = [chain_state.field_on_chain(service, NOBODY, block, field) for field in chain_state.AccountField]
    assert values == [0, 0, EMPTY_TRIE_ROOT, 0]


def test_a_balance_of_256_bits_is_exact_everywhere(service, key):
    balances = {NOBODY: 2**256 - 1, users.BOB: 2**256 - 2}
    for address, balance in balances.items():
        service.rpc("anvil_setBalance", address, hex(balance))
    service.mine()
    block = service.head()
    assert work_until_done(submit(key, request(*balances, block=block))).status == BatchStatus.DONE
    assert {
        who: chain_state.field_on_chain(service, who, block, chain_state.AccountField.BALANCE) for who in balances
    } == balances


@pytest.mark.story
def test_batches_on_one_block_share_one_transaction(service, key):
    block = service.head()
    batches = [
        submit(key, request(users.ALICE, block=block)),
        submit(key, request(users.BOB, users.ALICE, block=block, props=["NONCE", "CODE_HASH"])),
        submit(users.a_key(users.BOB), request(users.SIGNER, block=block)),
    ]
    before = chain_state.signer_nonce(service)
    for batch in batches:
        assert work_until_done(batch).status == BatchStatus.DONE
    assert chain_state.signer_nonce(service) == before + 1
    assert len(chain_state.events(service, chain_state.HEADER_ACCUMULATED)) == 1
    assert (
        chain_state.field_on_chain(service, users.ALICE, block, chain_state.AccountField.CODE_HASH) == EMPTY_CODE_HASH
    )


def test_a_fact_that_exists_costs_nothing(service, key):
    block = service.head()
    work_until_done(submit(key, request(users.ALICE, block=block)))
    before = chain_state.signer_nonce(service)
    again = work_until_done(submit(key, request(users.ALICE, block=block, props=["NONCE"])))
    assert again.status == BatchStatus.DONE
    assert chain_state.signer_nonce(service) == before
    assert (again.gas_used, again.estimated_gas) == (0, 0)


def test_no_archive_node_is_needed_once_initial_state_is_completed(service, key, settings):
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(users.ALICE, block=service.head()))
    work(2)
    assert batch.queries.get().step != StepKind.INITIAL_STATE

    def without_states(question: Any, reply: Any) -> list[Any]:
        assert question["method"] != "eth_getProof"
        return [reply]

    with changed_replies(settings, service, without_states):
        service.rpc("evm_setAutomine", True)
        assert work_until_done(batch, service).status == BatchStatus.DONE


def test_confirmations_are_waited_for(service, key, settings):
    reconfigure(settings, "confirmations = 1", "confirmations = 3")
    service.mine(2)  # the registry needs more confirmations now
    batch = submit(key, request(users.ALICE, block=service.head()))
    work(3)
    mined_at = Transaction.objects.exclude(to=DEPLOYER).get().block_number
    assert mined_at is not None
    assert service.head() == mined_at
    for _ in range(2):
        assert fresh(batch).status == BatchStatus.IN_PROGRESS
        assert batch.queries.get().step == StepKind.HEADER_ACCUMULATED
        assert waiting() == []
        service.mine()
        work(2)
    assert fresh(batch).status == BatchStatus.DONE
    assert service.head() == mined_at + 2


def cut_account(proof: dict[str, Any]) -> None:
    del proof["accountProof"][-1]


def change_slots(proof: dict[str, Any]) -> None:
    for slot in proof["storageProof"]:
        slot["proof"] = ["0x" + "00" * 40]


@pytest.mark.long
@pytest.mark.parametrize("lie", [cut_account, change_slots])
def test_a_node_whose_proofs_do_not_verify_is_named_and_another_asked(service, key, settings, lie):
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof":
            lie(reply["result"])
        return [reply]

    with changed_replies(settings, service, change) as bad:
        batch = submit(key, of_slots(users.ALICE, service.head(), 1))
        work(6)
        assert Transaction.objects.exclude(to=DEPLOYER).count() == 0
        assert f"{bad.removeprefix('http://')} answered eth_getProof with a proof of {users.ALICE} " in waiting()[0]
        # `reconfigure` makes new clients, so the first node in the file is asked first, and that is the bad one.
        reconfigure(settings, f'"{bad}"', f'"{bad}", "{service.url}"')
        assert work_until_done(batch).status == BatchStatus.DONE
    of_bad = {"chain": "31337", "node": bad.removeprefix("http://"), "outcome": "invalid_reply"}
    assert (REGISTRY.get_sample_value("batchquery_node_exchanges_total", of_bad) or 0) >= 2


EVIL = "0x" + "00" * 19 + "66"
NO_USABLE_ANSWER: dict[str, Callable[[Any, Any], list[Any]]] = {
    "rate limit": lambda question, _: [error(question, -32005, "rate limit")],
    "too large": lambda question, _: [result(question, "0x" + "00" * 1_000_000)],
    "no reply": lambda *_: [],
    "twice": lambda _, reply: [reply, reply],
}


def of_slots(address: str, block: int, slots: int) -> dict[str, Any]:
    body = request(address, block=block)
    body["data"]["31337"][f"block:{block}"]["accounts"][address]["slots"] = [hex(n) for n in range(slots)]
    return body


@pytest.mark.long
@pytest.mark.parametrize(("way", "slots"), [*zip(NO_USABLE_ANSWER, (0, 200, 200, 0), strict=True)])
def test_one_account_without_a_usable_answer_holds_up_no_other_user(service, settings, way, slots):
    random.seed(1)  # accounts come in random order

    def change(question: Any, reply: Any) -> list[Any]:
        is_evil = question["method"] == "eth_getProof" and question["params"][0].lower() == EVIL
        return NO_USABLE_ANSWER[way](question, reply) if is_evil else [reply]

    with changed_replies(settings, service, change):
        block = service.head()
        evil = submit(users.a_key(users.ALICE), of_slots(EVIL, block, slots) | {"sender": "self"})
        good = work_until_done(submit(users.a_key(users.BOB), of_slots(users.BOB, block, slots)))
        evil.refresh_from_db()
        steps = dict(Step.objects.exclude(error=None).values_list("query__batch", "error"))
    assert good.status == BatchStatus.DONE
    # A batch about this account alone keeps waiting, because a node may answer yet.
    assert evil.status not in {BatchStatus.REJECTED, BatchStatus.DONE}
    assert not steps.keys() - {evil.pk}


@pytest.mark.long
def test_an_account_whose_node_is_too_slow_for_all_its_slots_is_asked_for_fewer(service, settings):
    def give_up(body: Any) -> Any:
        questions = body if isinstance(body, list) else [body]
        is_slow = any(
            question["method"] == "eth_getProof" and len(question["params"][1]) > 10 for question in questions
        )
        return Raw(status=504) if is_slow else ask(service.url, body)

    with lying_node(give_up) as url:
        reconfigure(settings, service.url, url)
        block = service.head()
        heavy = submit(users.a_key(users.ALICE), of_slots(EVIL, block, 60))
        light = submit(users.a_key(users.BOB), request(users.BOB, block=block))
        assert work_until_done(light).status == BatchStatus.DONE
        assert work_until_done(heavy).status == BatchStatus.DONE


@contextmanager
def without_proofs(chain: DevChain, settings: Any) -> Iterator[None]:
    def refuse(question: Any, reply: Any) -> list[Any]:
        refusal = error(question, *geth_answers.REFUSALS["an old state"])
        return [refusal if question["method"] == "eth_getProof" else reply]

    with changed_replies(settings, chain, refuse) as url:
        yield
    reconfigure(settings, url, chain.url)


@pytest.mark.long
def test_a_refusal_to_serve_a_proof_is_final_only_after_minutes(service, key, settings, caplog):
    caplog.set_level(logging.INFO)
    batch = submit(key, request(users.ALICE, block=service.head()))
    with without_proofs(service, settings):
        work(8)
        assert fresh(batch).status == BatchStatus.ACCEPTED
        assert "(-32000)" in waiting()[0]
        assert "historical state" not in str(waiting()), "what a node says is for operators"
        assert "the node said: “historical state" in caplog.text
        Block.objects.update(refused_since=timezone.now() - timedelta(minutes=11))
        work()
    assert (fresh(batch).status, batch.rejection_code, batch.rejection_retryable) == (
        BatchStatus.REJECTED,
        "proof_unavailable",
        True,
    )


@pytest.mark.long
def test_a_refusal_to_serve_a_proof_is_not_final_by_a_clock_that_jumps(service, key, settings, monkeypatch):
    batch = submit(key, request(users.ALICE, block=service.head()))
    with without_proofs(service, settings):
        work(3)
        assert Block.objects.get().refused_since
        now = timezone.now()
        monkeypatch.setattr(timezone, "now", lambda: now + timedelta(hours=25))
        work()
    assert fresh(batch).status == BatchStatus.ACCEPTED


@pytest.mark.long
def test_a_fact_that_differs_is_said_and_nothing_sent(service, key):
    block = service.head()
    work_until_done(submit(key, request(users.ALICE, block=block)))
    AccountProof.objects.update(balance=1)
    before = chain_state.signer_nonce(service)
    batch = submit(key, request(users.ALICE, block=block, props=["BALANCE"]))
    work(5)
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert "than this service proved" in waiting()[0]
    assert chain_state.signer_nonce(service) == before


@pytest.mark.long
def test_work_that_fails_is_logged_and_pushed_ahead_and_the_rest_goes_on(service, key, caplog):
    submit(key, request(users.BOB, block=service.head() - 1))
    good = submit(key, request(users.ALICE, block=service.head()))

    def fail_on_bob(execute, sql, params, *others):
        if sql.startswith("INSERT") and users.BOB in params:
            raise ZeroDivisionError("a defect")
        return execute(sql, params, *others)

    with connection.execute_wrapper(fail_on_bob):
        for _ in range(4):
            before_last = timezone.now()
            with suppress(CommandError):
                work()
    assert fresh(good).status == BatchStatus.DONE
    assert ["error of this service" in sentence for sentence in waiting()] == [True]
    assert "a defect" in caplog.text
    assert value(Client().get("/metrics").text, "batchquery_job_run_seconds_count", kind="block", outcome="defect")
    assert Block.objects.filter(wait__isnull=False, due_at__gt=before_last + timedelta(seconds=1)).exists()
