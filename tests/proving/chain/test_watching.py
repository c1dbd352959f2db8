"""Observations of chains, and a running worker when clocks jump."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import ChainWatch, Problem, Signer, Transaction, TransactionState
from queries.models import Batch, BatchStatus
from tests import metrics, users
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, between, error, is_chain_id, lying_node, result
from tests.explorer.batches import DEAD_NODE, SOURCE, beat, connect_source
from tests.factories import is_done, until
from tests.proving import chain_state, money, transactions
from tests.proving.money_node import Node
from tests.proving.paths import HISTORY, rewrite_history
from tests.proving.receiver import receiver, tell_operator
from tests.service import chains_toml, changed_replies, done, fresh, reconfigure, request, submit, work, work_until_done
from tests.stored_problems import stored
from tests.users import ALICE, SIGNER, SIGNERS, a_key

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

DAY = timedelta(hours=25)


def seen(chain_id: int = 31337) -> list[str]:
    """Return the codes that a worker has stored about the chain."""
    return [problem.code for problem in stored(chain_id)]


def test_an_observation_has_the_newest_block_and_no_problem(service):
    work()
    watch = ChainWatch.objects.get()
    assert stored() == []
    assert watch.looked_at
    assert watch.looked_at > timezone.now() - timedelta(seconds=20)
    assert watch.timestamp == int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    assert watch.due_at
    assert timedelta(seconds=5) < watch.due_at - timezone.now() < timedelta(seconds=16)


@pytest.mark.long
def test_a_signer_that_runs_out_of_funds_is_seen_without_work_and_seen_to_be_funded_again(service):
    service.rpc("anvil_setBalance", SIGNER, hex(10**15))
    work()
    (problem,) = stored()
    assert problem.code == "signer_unfunded"
    assert f"The signer {SIGNER} on Development chain (31337) holds 0.001000 ETH, less than the 0.01" in problem.shown
    due_at = ChainWatch.objects.get().due_at
    assert due_at
    assert due_at - timezone.now() < timedelta(seconds=11)
    service.rpc("anvil_setBalance", SIGNER, hex(10**18))
    work()
    assert seen() == []


def test_an_observation_has_the_problems_of_each_of_several_signers(two_signers):
    for address in SIGNERS:
        two_signers.rpc("anvil_setBalance", address, hex(10**15))
    work()
    problems = stored()
    assert [problem.code for problem in problems] == ["signer_unfunded"] * 2
    assert all(any(address in problem.shown for problem in problems) for address in SIGNERS)


def test_a_history_that_tells_another_hash_is_seen_and_told_by_healthz(service):
    rewrite_history(service, reads=3)
    work()
    told = Client().get("/healthz").json()
    assert "wrong_history" in told["codes"]
    assert any(HISTORY in sentence and "31337" in sentence for sentence in told["problems"])


@pytest.mark.long
def test_nodes_of_which_no_proof_verifies_are_told_by_healthz(service, settings):
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof":
            reply["result"]["accountProof"].pop()
        return [reply]

    beat()
    with changed_replies(settings, service, change):
        work()
    assert Client().get("/healthz").json()["codes"] == ["no_proofs"]


@pytest.mark.long
def test_a_stale_first_node_calls_nobody_where_another_node_tells_a_later_block(service, settings):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    work()
    with lying_node(Node(service, "stale")) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        work()
        assert seen() == []
        (resting,) = ChainWatch.objects.get().resting_nodes
        assert resting["host"] in url
        reconfigure(settings, f'"{url}", "{service.url}"', f'"{url}"')
        work()
    assert seen() == ["head_went_back"]


@pytest.mark.parametrize("blocks", [0, 1, 6])
def test_a_chain_of_few_blocks_is_healthy(service, tmp_path, blocks):
    with DevChain(chain_id=SOURCE) as young:
        if blocks:
            young.mine(blocks)
        connect_source(tmp_path, young.url)
        work()
        assert (seen(), seen(SOURCE)) == ([], [])


def test_a_chain_whose_nodes_are_down_is_seen_beside_one_that_is_up(service, tmp_path):
    connect_source(tmp_path, DEAD_NODE)
    work()
    assert (seen(), seen(SOURCE)) == ([], ["chain_unavailable"])


def test_a_host_name_that_does_not_resolve_is_told_by_healthz(service, settings):
    beat()
    reconfigure(settings, service.url, "http://no-such-host.invalid:8545")
    work()
    told = Client().get("/healthz").json()
    why = "no-such-host.invalid:8545 can't be reached, because its name doesn't resolve."
    sentence = f"No node of Development chain (31337) can be used: {why}"
    assert (told["codes"], told["problems"]) == (["chain_unavailable"], [sentence])


@pytest.mark.long
def test_each_url_that_leads_to_another_chain_is_told_of_one_chain(service, settings, tmp_path):
    """The nodes before it work, so no ordinary request reaches the wrong node."""
    beat()
    with DevChain(chain_id=5) as other:
        settings.CHAINS_FILE = chains_toml(tmp_path, service.url, DEAD_NODE, f"{other.url}?key=secret")
        forget_chains()
        work()
        host = other.url.removeprefix("http://")
        sentence = f"URL 3 of Development chain (31337) is not used: {host} is a node of chain 5, not of 31337."
        about = {"chainId": "31337", "url": "3"}
        (problem,) = stored()
        assert (problem.code, problem.shown, problem.values) == ("wrong_chain", sentence, about)
        assert sentence in Client().get("/healthz").json()["problems"]
        since = (timezone.now() - timedelta(minutes=11)).isoformat()
        longer = [node | {"since": since} for node in ChainWatch.objects.get(pk=31337).resting_nodes]
        assert len(longer) == 2
        ChainWatch.objects.update(resting_nodes=longer, due_at=None)
        work()
        assert seen() == ["node_fails", "wrong_chain"]


_STATUS, _WORDS = geth_answers.REFUSED_HTTP["another host name"]
OTHER_HOST = Raw(_WORDS, _STATUS)


def sentences() -> tuple[list[str], list[str]]:
    """Return the problems that operators read, and those of the public page."""
    public = [sentence for chain in Client().get("/chains.json").json()["chains"] for sentence in chain["problems"]]
    return Client().get("/healthz").json()["problems"], public


@pytest.mark.parametrize(
    ("answer", "why", "words"),
    [
        (lambda _: OTHER_HOST, "answered with HTTP status 403", "invalid host specified"),
        (
            lambda body: result(body, "0x7a69") if is_chain_id(body) else error(body, -32000, "members only"),
            "refuses requests that any node answers.",
            "members only",
        ),
    ],
    ids=["status", "refusal"],
)
def test_operators_read_what_the_node_of_an_unavailable_chain_says(service, settings, answer, why, words):
    beat()
    with lying_node(answer) as url:
        reconfigure(settings, service.url, url)
        work()
        since = (timezone.now() - timedelta(minutes=11)).isoformat()
        longer = [node | {"since": since} for node in ChainWatch.objects.get().resting_nodes]
        ChainWatch.objects.update(resting_nodes=longer, due_at=None)
        work()
    (of_operator,), (public,) = sentences()
    assert why in of_operator
    assert of_operator.endswith(f"; the node said: “{words}”.")
    assert why in public
    assert words not in public


def test_a_node_that_fails_for_long_is_told_with_its_words_although_another_one_works(service, settings):
    beat()
    with lying_node(lambda _: OTHER_HOST) as url:
        reconfigure(settings, f'"{service.url}"', f'"{service.url}", "{url}"')
        work()
        assert seen() == []
        (node,) = ChainWatch.objects.get().resting_nodes
        since = (timezone.now() - timedelta(minutes=11)).isoformat()
        ChainWatch.objects.update(resting_nodes=[node | {"since": since}], due_at=None)
        work()
        assert seen() == ["node_fails"]
        (of_operator,), (public,) = sentences()
        reconfigure(settings, f'"{service.url}", "{url}"', f'"{service.url}"')
        work()
        assert seen() == []
    host = url.removeprefix("http://")
    why = f"{host} answered with HTTP status 403"
    sentence = f"A node of Development chain (31337) has failed for 10 minutes, and others work: {why}"
    assert public == f"{sentence}."
    assert of_operator == f"{sentence}; the node said: “invalid host specified”."


@pytest.mark.long
def test_a_worker_finds_again_what_a_clock_that_was_ahead_has_put_off(service, start_worker):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    Batch.objects.update(due_at=timezone.now() + DAY)
    start_worker()
    until(lambda: is_done(batch), "DONE")


@pytest.mark.long
def test_no_node_is_asked_inside_a_transaction(service, settings):
    """During a database transaction, other processes would wait for the node, too."""
    database, requests_inside = connections["default"], Counter[bool]()

    def note(_: Any, reply: Any) -> list[Any]:
        requests_inside[database.in_atomic_block] += 1
        return [reply]

    # The first transaction's tip is compared, and then the next nonce, which is above those of stored transactions.
    Transaction.objects.all().delete()
    with between(service.url, note) as url, between(service.url, note) as other:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{other}"')
        work_until_done(submit(a_key(), request(ALICE, block=service.head())))
    assert requests_inside[False] > 10
    assert not requests_inside[True]


# --- Transactions with a signer's key that this service did not send --------------------------------------------------


CODE = "foreign_transactions"
Change: TypeAlias = Callable[[Any, Any], list[Any]]


@pytest.fixture
def observed(service: DevChain) -> DevChain:
    """Return a chain whose signer a worker has observed."""
    work()
    return service


def steal(chain: DevChain, count: int = 3) -> None:
    for _ in range(count):
        before = chain_state.signer_nonce(chain)
        transactions.send_from_elsewhere(chain, before)
        while chain_state.signer_nonce(chain) == before:
            chain.mine()


def prove(chain: DevChain, account: str = users.ALICE) -> None:
    done(submit(users.a_key(), request(account, block=chain.head())), chain)


def told() -> list[str]:
    """Let a worker observe the chain. Return the sentences of `/healthz` about foreign transactions."""
    work()
    health = Client().get("/healthz").json()
    return [sentence for code, sentence in zip(health["codes"], health["problems"], strict=True) if code == CODE]


@pytest.mark.story
def test_a_thief_is_told_everywhere_until_the_operator_accepts_it(observed, settings, monkeypatch, caplog):
    steal(observed)
    with receiver() as hook:
        tell_operator(settings, monkeypatch, hook.url)
        (sentence,) = told()
        Problem.objects.update(began_at=timezone.now() - timedelta(seconds=31))
        work()
        (message,) = [got for got in hook.received if got.data("code") == CODE]
    assert f"Since {timezone.now():%Y-%m-%d}" in sentence
    assert f"the signer {users.SIGNER} on chain 31337 has used 3 nonces" in sentence
    assert "used 3 nonces" in caplog.text
    assert (message.data("problem"), message.data("values")["signer"]) == (sentence, users.SIGNER)
    assert metrics.value(Client().get("/metrics").text, "batchquery_problems", code=CODE) == 1
    with pytest.raises(CommandError, match=f"{CODE}: .* 3 nonces"):
        call_command("check_chains", stdout=StringIO())
    # It stays while the service goes on.
    prove(observed)
    assert told() == [sentence]
    call_command("resume", "31337", "--signer", users.SIGNER, stdout=StringIO())
    assert Client().get("/healthz").json()["codes"].count(CODE) == 0
    assert told() == []
    steal(observed, 1)
    (again,) = told()
    assert "has used 1 nonce for" in again


def test_a_command_that_checks_chains_counts_without_a_worker(observed):
    steal(observed)
    with pytest.raises(CommandError, match=f"{CODE}: .* 3 nonces"):
        call_command("check_chains", stdout=StringIO())


def robbed_of_a_reserved_nonce(chain: DevChain) -> tuple[Batch, Transaction]:
    """Return a batch that waits, and its transaction, whose nonce a thief has just used."""
    chain.rpc("evm_setAutomine", False)
    batch = submit(users.a_key(), request(users.ALICE, block=chain.head()))
    ours = money.pending(batch)
    chain.rpc("anvil_dropTransaction", ours.versions.get().hash)
    transactions.send_from_elsewhere(chain, ours.nonce)
    chain.mine()
    return batch, ours


@pytest.mark.long
def test_a_thief_that_takes_a_reserved_nonce_is_told_after_two_blocks(observed):
    batch, ours = robbed_of_a_reserved_nonce(observed)
    assert told() == []
    observed.mine()
    (sentence,) = told()
    assert "has used 1 nonce for" in sentence
    # Until a final block has used the nonce, a reorganisation may give it back.
    assert fresh(ours).state == TransactionState.PENDING
    assert work_until_done(batch, observed).status == BatchStatus.DONE
    assert fresh(ours).state == TransactionState.DISPLACED
    assert told() == [sentence]


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "words"), [(1, "seems to have used 1 nonce for"), (2, "has used 1 nonce for")])
def test_a_reserved_nonce_that_was_taken_is_suspected_without_proof_and_second_node(observed, settings, nodes, words):
    robbed_of_a_reserved_nonce(observed)
    observed.mine()
    with between(observed.url, unproven) as url, between(observed.url, unproven) as other:
        reconfigure(settings, f'"{observed.url}"', ", ".join(f'"{each}"' for each in [url, other][:nodes]))
        (sentence,) = told()
    assert words in sentence


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize(
    ("proves", "words"), [(True, "has used 1 nonce for"), (False, "seems to have used 1 nonce for")]
)
def test_one_of_two_nodes_that_lies_about_old_blocks_hides_no_reserved_nonce(
    observed, settings, is_first, proves, words
):
    _, ours = robbed_of_a_reserved_nonce(observed)
    observed.mine(2)

    def unused(question: Any, reply: Any) -> list[Any]:
        is_old = is_of_nonce(question) and question["params"][1].startswith("0x")
        reply = reply | {"result": hex(ours.nonce)} if is_old else reply
        return [reply] if proves else unproven(question, reply)

    def honest(question: Any, reply: Any) -> list[Any]:
        return [reply] if proves else unproven(question, reply)

    with between(observed.url, unused) as liar, between(observed.url, honest) as other:
        urls = [liar, other] if is_first else [other, liar]
        reconfigure(settings, f'"{observed.url}"', f'"{urls[0]}", "{urls[1]}"')
        (sentence,) = told()
    assert words in sentence


@pytest.mark.long
@pytest.mark.parametrize("proves", [True, False])
def test_one_node_that_names_a_wrong_block_makes_no_thief_where_the_other_lacks_receipts(observed, settings, proves):
    observed.rpc("evm_setAutomine", False)
    ours = money.pending(submit(users.a_key(), request(users.ALICE, block=observed.head())))
    be_of_value(observed, settings)
    using = observed.head()
    observed.mine(5)

    def lags(question: Any, reply: Any) -> list[Any]:
        if question["method"] in {"eth_getTransactionReceipt", "eth_getTransactionByHash"}:
            return [result(question, None)]
        return [reply] if proves else unproven(question, reply)

    def misleads(question: Any, reply: Any) -> list[Any]:
        block = question["params"][1] if is_of_nonce(question) else ""
        if block.startswith("0x"):
            return [reply | {"result": hex(ours.nonce + (int(block, 16) >= using - 2))}]
        return lags(question, reply)

    with between(observed.url, misleads) as liar, between(observed.url, lags) as other:
        reconfigure(settings, f'"{observed.url}"', f'"{liar}", "{other}"')
        assert told() == []


@pytest.mark.long
def test_a_suspicion_ends_once_the_only_node_shows_our_transaction_in_its_block(observed, settings):
    observed.rpc("evm_setAutomine", False)
    ours = money.pending(submit(users.a_key(), request(users.ALICE, block=observed.head())))
    using, misleads = observed.head(), [True]
    observed.mine(5)

    def without_receipts(question: Any, reply: Any) -> list[Any]:
        if question["method"] in {"eth_getTransactionReceipt", "eth_getTransactionByHash"}:
            return [result(question, None)]
        # A final block that has used the nonce would displace the transaction.
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized":
            return [result(question, observed.rpc("eth_getBlockByNumber", "0x1", False))]
        block = question["params"][1] if is_of_nonce(question) else ""
        if misleads and block.startswith("0x"):
            return [reply | {"result": hex(ours.nonce + (int(block, 16) >= using - 2))}]
        return unproven(question, reply)

    with changed_replies(settings, observed, without_receipts):
        (sentence,) = told()
        assert "seems to have used 1 nonce for" in sentence
        misleads.clear()
        assert told() == []


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_thief_in_a_block_that_one_node_alone_shows_is_suspected(observed, settings, nodes):
    """The only node lacks proofs at this block, or one of two nodes denies the block that the other one proves."""
    robbed_of_a_reserved_nonce(observed)
    using = observed.head()
    observed.mine()

    numbers = [hex(using - 1), hex(using)]
    hashes = [observed.rpc("eth_getBlockByNumber", number, False)["hash"] for number in numbers]
    old = [*numbers, *({"blockHash": block_hash} for block_hash in hashes)]

    def denies(question: Any, reply: Any) -> list[Any]:
        is_block = question["method"] == "eth_getBlockByNumber" and question["params"][0] == hex(using)
        return [result(question, None) if is_block else reply]

    def forgets(question: Any, reply: Any) -> list[Any]:
        is_old = question["method"] == "eth_getProof" and question["params"][2] in old
        return [error(question, -32000, "missing trie node") if is_old else reply]

    with between(observed.url, forgets if nodes == 1 else denies) as url:
        urls = [url, observed.url][:nodes]
        reconfigure(settings, f'"{observed.url}"', ", ".join(f'"{each}"' for each in urls))
        (sentence,) = told()
    assert "seems to have used 1 nonce for" in sentence


@pytest.mark.long
def test_an_observation_takes_few_requests_however_many_transactions_wait(observed, settings):
    observed.rpc("evm_setAutomine", False)
    ours = money.pending(submit(users.a_key(), request(users.ALICE, block=observed.head())))
    (version,) = ours.versions.all()
    observed.rpc("anvil_dropTransaction", version.hash)
    observed.mine(150)
    first, head, asked, exchanges = ours.nonce, observed.head(), Counter[str](), Counter[str]()

    def all_used(question: Any, reply: Any) -> list[Any]:
        asked[question["method"]] += 1
        if is_of_nonce(question):
            block = question["params"][1]
            above = head if block == "latest" else int(block, 16)
            return [reply | {"result": hex(first + max(0, min(30, 2 * (above - head + 40))))}]
        return unproven(question, reply)

    def counted(body: Any) -> Any:
        exchanges.update({question["method"] for question in (body if isinstance(body, list) else [body])})
        return ask(url, body)

    for waiting in range(1, 30):
        ours.pk, ours.nonce = None, first + waiting
        ours.save(force_insert=True)
        version.pk, version.transaction, version.hash = None, ours, f"0x{waiting:064x}"
        version.save(force_insert=True)
    with between(observed.url, all_used) as url, lying_node(counted) as counting:
        reconfigure(settings, observed.url, counting)
        with pytest.raises(CommandError, match=CODE):
            call_command("check_chains", stdout=StringIO())
    assert asked["eth_getTransactionReceipt"] <= 8
    assert exchanges["eth_getTransactionCount"] <= 7
    assert exchanges["eth_getBlockByNumber"] <= 12


@pytest.mark.long
def test_a_reserved_nonce_that_was_taken_is_told_no_more_once_the_operator_knows(observed):
    batch, ours = robbed_of_a_reserved_nonce(observed)
    observed.mine()
    assert told()
    call_command("resume", "31337", "--signer", users.SIGNER, stdout=StringIO())
    assert told() == []
    assert work_until_done(batch, observed).status == BatchStatus.DONE
    assert fresh(ours).state == TransactionState.DISPLACED
    assert told() == []


@pytest.mark.long
def test_a_reserved_nonce_that_was_taken_stays_told_while_its_block_is_old_and_not_final(observed, settings):
    _, ours = robbed_of_a_reserved_nonce(observed)
    observed.mine()
    (sentence,) = told()

    def without_finality(question: Any, reply: Any) -> list[Any]:
        is_final = question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized"
        return [result(question, observed.rpc("eth_getBlockByNumber", "0x1", False)) if is_final else reply]

    with between(observed.url, without_finality) as url:
        reconfigure(settings, observed.url, url)
        observed.mine(130)
        assert told() == [sentence]
        assert fresh(ours).state == TransactionState.PENDING


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 2])
def test_nodes_whose_receipts_lag_make_no_thief_and_no_displaced_transaction(observed, settings, nodes):
    def hidden(question: Any, reply: Any) -> list[Any]:
        is_of_transaction = question["method"] in {"eth_getTransactionReceipt", "eth_getTransactionByHash"}
        return [result(question, None) if is_of_transaction else reply]

    with between(observed.url, hidden) as url, between(observed.url, hidden) as other:
        reconfigure(settings, f'"{observed.url}"', ", ".join(f'"{each}"' for each in [url, other][:nodes]))
        batch = submit(users.a_key(), request(users.ALICE, block=observed.head()))
        ours = money.pending(batch)
        for blocks in (1, 1, 70):
            observed.mine(blocks)
            assert told() == []
    assert fresh(ours).state == TransactionState.PENDING
    reconfigure(settings, f'"{url}"', f'"{observed.url}"')
    assert work_until_done(batch, observed).status == BatchStatus.DONE
    assert batch.queries.get().transactions.get() == ours


def test_a_key_that_chains_toml_no_longer_has_is_told_no_more(observed, settings):
    steal(observed)
    assert told()
    (settings.CHAINS_FILE.parent / "signer.key").write_text(users.SECOND_SIGNER_KEY)
    reconfigure(settings, "31337", "31337")
    assert told() == []


def test_no_problem_is_reported_once_chains_toml_has_no_key(observed, settings):
    steal(observed)
    assert told()
    reconfigure(settings, '[chains.signer]\nkey_file = "signer.key"', "")
    assert told() == []


def be_of_value(chain: DevChain, settings: Any) -> None:
    """Make it no test network, so that problems may be critical. Its newest block is young on a slow machine, too."""
    reconfigure(settings, "test_network = true", 'daily_limit = "1"\ndaily_limit_per_user = "1"')
    chain.rpc("evm_setNextBlockTimestamp", int(time.time()) + 200)
    chain.mine()


def is_of_nonce(question: Any) -> bool:
    return bool(question["method"] == "eth_getTransactionCount")


@contextmanager
def beside_a_liar(chain: DevChain, settings: Any, change: Change, *, is_first: bool) -> Iterator[str]:
    """Place a lying node beside the true one. Yield its host."""
    with between(chain.url, change) as url:
        urls = [url, chain.url] if is_first else [chain.url, url]
        reconfigure(settings, f'"{chain.url}"', f'"{urls[0]}", "{urls[1]}"')
        yield url.removeprefix("http://").rstrip("/")


def raised(question: Any, reply: Any) -> list[Any]:
    return [reply | {"result": hex(int(reply["result"], 16) + 3)} if is_of_nonce(question) else reply]


@pytest.mark.long
def test_an_only_node_that_tells_a_nonce_too_high_makes_no_thief_because_it_proves_another(observed, settings):
    with changed_replies(settings, observed, raised):
        assert told() == []
        steal(observed, 1)
        (sentence,) = told()
    assert "has used 1 nonce for" in sentence


@pytest.mark.long
def test_an_only_node_without_proofs_is_suspected_as_well_and_hides_no_signer_that_waits(observed, settings):
    def raised_without_proofs(question: Any, reply: Any) -> list[Any]:
        is_newest = question["params"][1:] == ["latest"]
        return unproven(question, *raised(question, reply) if is_newest else [reply])

    observed.rpc("evm_setAutomine", False)
    ours = money.pending(submit(users.a_key(), request(users.ALICE, block=observed.head())))
    observed.rpc("anvil_dropTransaction", ours.versions.get().hash)
    be_of_value(observed, settings)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(minutes=5))
    with changed_replies(settings, observed, raised_without_proofs):
        (sentence,) = told()
    assert "seems to have used" in sentence
    assert "Only one node reports this, and no proof confirms it. Either the key is stolen" in sentence
    health = Client().get("/healthz").json()
    assert "signer_waits" in health["codes"]
    assert CODE not in health["critical"]


@pytest.mark.long
def test_a_thief_that_only_one_node_reports_without_proof_is_critical_once_another_node_does(observed, settings):
    with between(observed.url, unproven) as url, between(observed.url, unproven) as other:
        reconfigure(settings, f'"{observed.url}"', f'"{url}"')
        be_of_value(observed, settings)
        assert told() == []
        steal(observed, 1)
        (suspicion,) = told()
        assert "seems to have used 1 nonce for" in suspicion
        assert CODE not in Client().get("/healthz").json()["critical"]
        reconfigure(settings, f'"{url}"', f'"{url}", "{other}"')
        for urls in (f'"{url}", "{other}"', f'"{url}"'):
            (sentence,) = told()
            assert "has used 1 nonce for" in sentence
            assert CODE in Client().get("/healthz").json()["critical"]
            reconfigure(settings, urls, f'"{url}"')


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_one_of_two_nodes_that_tells_a_nonce_too_high_calls_nobody(observed, settings, is_first):
    with beside_a_liar(observed, settings, raised, is_first=is_first):
        assert told() == []
        steal(observed, 1)
        (sentence,) = told()
    assert "has used 1 nonce for" in sentence


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("refuses", [False, True], ids=["of each block", "of the newest block only"])
def test_one_of_two_nodes_that_tells_the_nonce_of_before_hides_no_thief(observed, settings, is_first, refuses):
    before = chain_state.signer_nonce(observed)

    def hidden(question: Any, reply: Any) -> Any:
        if not is_of_nonce(question):
            return [reply]
        if refuses and question["params"][1] != "latest":
            return [error(question, *geth_answers.REFUSALS["an old state"])]
        return [reply | {"result": hex(before)}]

    with beside_a_liar(observed, settings, hidden, is_first=is_first):
        prove(observed)
        observed.mine(4)
        assert told() == []
        steal(observed)
        observed.mine(4)
        for _ in range(2):
            (sentence,) = told()
            assert "has used 3 nonces for" in sentence
        call_command("resume", "31337", "--signer", users.SIGNER, stdout=StringIO())
        assert told() == []


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_one_of_two_nodes_that_also_denies_the_block_of_a_theft_leaves_a_suspicion(observed, settings, is_first):
    before = chain_state.signer_nonce(observed)

    def hidden(question: Any, reply: Any) -> Any:
        params = question["params"]
        if is_of_nonce(question) and params[1] != "latest":
            return [error(question, *geth_answers.REFUSALS["a block number to come"])]
        if is_of_nonce(question):
            return [reply | {"result": hex(before)}]
        is_denied = question["method"] == "eth_getBlockByNumber" and params[0].startswith("0x")
        return [result(question, None) if is_denied else reply]

    with beside_a_liar(observed, settings, hidden, is_first=is_first):
        be_of_value(observed, settings)
        steal(observed)
        observed.mine(6)
        (sentence,) = told()
        assert "seems to have used 3 nonces for" in sentence
        assert CODE not in Client().get("/healthz").json()["critical"]


def doubts() -> list[str]:
    """Let a worker observe the chain, which must tell no thief. Return the sentences about doubtful nodes."""
    assert told() == []
    health = Client().get("/healthz").json()
    pairs = zip(health["codes"], health["problems"], strict=True)
    return [sentence for code, sentence in pairs if code == "node_doubtful"]


def unproven(question: Any, reply: Any) -> list[Any]:
    return [error(question, -32601, "no such method") if question["method"] == "eth_getProof" else reply]


@pytest.mark.long
@pytest.mark.parametrize(("difference", "lags"), [(-3, False), (3, False), (-3, True)])
def test_nodes_that_tell_other_nonces_of_a_block_are_named_without_proofs(observed, settings, difference, lags):
    def other(question: Any, reply: Any) -> Any:
        if not is_of_nonce(question):
            return unproven(question, reply)
        if lags and question["params"][1] != "latest":
            return [error(question, *geth_answers.REFUSALS["a block number to come"])]
        return [reply | {"result": hex(int(reply["result"], 16) + difference)}]

    steal(observed)
    observed.mine(4)
    with between(observed.url, unproven) as plain, between(observed.url, other) as url:
        reconfigure(settings, observed.url, plain)
        assert len(told()) == 1
        call_command("resume", "31337", "--signer", users.SIGNER, stdout=StringIO())
        reconfigure(settings, f'"{plain}"', f'"{url}", "{plain}"')
        sentences = doubts()
    assert len(sentences) == (0 if lags else 1)
    nonce = chain_state.signer_nonce(observed)
    for sentence in sentences:
        for node, tells in ((url, nonce + difference), (plain, nonce)):
            assert f"{node.removeprefix('http://').rstrip('/')} says {tells}" in sentence
        assert users.SIGNER in sentence


@pytest.mark.long
def test_a_nonce_that_is_proven_of_another_chains_block_makes_no_thief(observed, settings):
    with DevChain() as other:
        steal(other, chain_state.signer_nonce(observed) + 3)
        other.mine(4)
        observed.mine(other.head() - observed.head())
        reconfigure(settings, f'"{observed.url}"', f'"{other.url}", "{observed.url}"')
        (sentence,) = doubts()
    assert all(chain.url.removeprefix("http://") in sentence for chain in (observed, other))


# --- Nodes that sync or are behind: their nonces are of earlier times ------------------------------------------------

FIRST_NONCES = {"eth_syncing": geth_answers.SYNCS, "eth_getTransactionCount": "0x0"}
DEPLOY = ("deploy_registry", "31337", "31337")


def of_earlier(question: Any, reply: Any) -> list[Any]:
    """Answer as a node that syncs and has no block yet."""
    return [reply | {"result": FIRST_NONCES.get(question["method"], reply.get("result"))}]


@pytest.fixture
def used(chain: DevChain, settings, tmp_path) -> DevChain:
    """Return a chain whose signer has used three nonces, without a deployment."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    steal(chain)
    chain.mine(40)
    return chain


def test_nothing_is_signed_with_a_nonce_from_a_node_that_syncs(used, settings):
    with between(used.url, of_earlier) as url:
        reconfigure(settings, used.url, url)
        with pytest.raises(CommandError, match="sync, or are behind"):
            call_command(*DEPLOY, stdout=StringIO())
        host = url.removeprefix("http://").rstrip("/")
        with pytest.raises(CommandError, match=f"node_syncing: {host}"):
            call_command("check_chains", stdout=StringIO())
        assert f"{host}, a node of Development chain (31337), says that it syncs" in Client().get("/chains").text
    assert not Transaction.objects.exists()
    reconfigure(settings, url, used.url)
    assert told() == [], "The nonces of the node that syncs are no first observation."


@pytest.mark.long
def test_a_first_node_without_blocks_leads_to_no_used_nonce(used, settings, caplog):
    with DevChain() as empty:
        reconfigure(settings, f'"{used.url}"', f'"{empty.url}", "{used.url}"')
        call_command(*DEPLOY, stdout=StringIO())
        work()
        assert told() == []
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", "succeeded")
    assert [*nonces] == [(3 + place, True) for place in range(len(nonces))]
    assert "foreign" not in caplog.text


@pytest.mark.long
def test_a_node_that_indexes_is_asked_as_any_other(used, settings):
    def indexes(question: Any, reply: Any) -> list[Any]:
        head = hex(used.head())
        is_asked = question["method"] == "eth_syncing"
        return [reply | {"result": {"currentBlock": head, "highestBlock": head}} if is_asked else reply]

    with between(used.url, indexes) as url:
        reconfigure(settings, used.url, url)
        call_command(*DEPLOY, stdout=StringIO())
        work()
        assert seen() == []


@pytest.mark.long
def test_the_nonce_of_a_node_whose_newest_block_is_hours_old_is_no_first_observation(settings, tmp_path):
    with DevChain(extra_args=["--timestamp", str(int(time.time()) - 3 * 3600)]) as chain:
        chain.mine(5)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        assert told() == []
        assert not Signer.objects.exclude(accounted_nonce=None).exists()
        steal(chain)
        chain.rpc("evm_setNextBlockTimestamp", int(time.time()))
        chain.mine()
        assert told() == []
        steal(chain, 1)
        (sentence,) = told()
        assert "has used 1 nonce for" in sentence


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_node_that_syncs_is_named_wherever_it_stands_and_hides_no_thief(observed, settings, is_first):
    with beside_a_liar(observed, settings, of_earlier, is_first=is_first) as host:
        work()
        assert seen() == ["node_syncing"]
        assert any(host in sentence for sentence in Client().get("/healthz").json()["problems"])
        prove(observed)
        steal(observed, 1)
        (sentence,) = told()
        assert "has used 1 nonce for" in sentence


@pytest.mark.long
def test_no_pending_transaction_is_given_up_for_the_nonces_of_a_node_that_syncs(used, settings):
    call_command(*DEPLOY, stdout=StringIO())
    Transaction.objects.all().delete()
    steal(used, 20)
    used.rpc("evm_setAutomine", False)
    batch = submit(users.a_key(), request(users.ALICE, block=used.head()))
    tx = money.pending(batch)
    with between(used.url, of_earlier) as url:
        reconfigure(settings, used.url, url)
        work(2)
    assert fresh(tx).state == TransactionState.PENDING
    reconfigure(settings, url, used.url)
    assert work_until_done(batch, used).status == BatchStatus.DONE
    assert [*Transaction.objects.values_list("nonce", flat=True)] == [tx.nonce]


# --- Databases that lack transactions ---------------------------------------------------------------------------------


@pytest.fixture
def copies(tmp_path) -> Callable[[str, str], None]:
    """Return a function that stores the database under a name, and goes on with the copy of another name."""

    def exchange(stored: str, loaded: str) -> None:
        models = ("accounts", "queries", "proving")
        call_command("dumpdata", *models, output=str(tmp_path / f"{stored}.json"), verbosity=0)
        call_command("flush", interactive=False, verbosity=0)
        if (tmp_path / f"{loaded}.json").exists():
            call_command("loaddata", str(tmp_path / f"{loaded}.json"), verbosity=0)

    return exchange


@pytest.mark.long
def test_a_restored_backup_is_told(observed, copies):
    copies("backup", "backup")
    prove(observed)
    assert told() == []
    copies("broken", "backup")
    (sentence,) = told()
    assert "older backup" in sentence


@pytest.mark.long
def test_two_installations_that_share_a_key_are_told(service, copies):
    copies("first", "second")
    call_command("deploy_registry", "31337", "31337", stdout=StringIO())
    assert told() == [], "The key was used before this installation began."
    prove(service)
    assert told() == []
    copies("second", "first")
    assert told() == []
    prove(service, users.BOB)
    copies("first", "second")
    assert len(told()) == 1


# --- The service's own transactions -----------------------------------------------------------------------------------


def replaced(chain: DevChain) -> None:
    chain.rpc("evm_setAutomine", False)
    batch = submit(users.a_key(), request(users.ALICE, block=chain.head()))
    money.pending(batch)
    transactions.work_aged()
    assert work_until_done(batch, chain).status == BatchStatus.DONE


def cancelled(chain: DevChain) -> None:
    chain.rpc("evm_setAutomine", False)
    batch = submit(users.a_key(), request(users.ALICE, block=chain.head()))
    money.pending(batch)
    money.cancel(batch)
    work()
    chain.mine()


def deployed(_: DevChain) -> None:
    call_command("deploy_registry", "31337", "31337", replace=True, stdout=StringIO())


def reorganised(chain: DevChain) -> None:
    prove(chain)
    chain.rpc("anvil_reorg", 1, [])
    assert told() == []
    work()


def pruned(chain: DevChain) -> None:
    prove(chain)
    chain.mine(200)
    work()
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=4000))
    call_command("prune", stdout=StringIO())
    assert Transaction.objects.exclude(pruned_at=None).exists()


@pytest.mark.long
@pytest.mark.parametrize("happens", [prove, replaced, cancelled, deployed, reorganised, pruned])
def test_transactions_of_the_service_itself_are_never_reported_as_foreign(observed, settings, happens):
    settings.KEEP_CALLDATA_DAYS = 30
    happens(observed)
    for _ in range(2):
        assert told() == []
        observed.mine(100)
    # A later thief is seen nevertheless.
    steal(observed, 1)
    (sentence,) = told()
    assert "has used 1 nonce for" in sentence


@pytest.mark.long
def test_a_development_chain_that_begins_anew_causes_no_problem_report(observed):
    snapshot = observed.rpc("evm_snapshot")
    prove(observed)
    observed.mine(200)
    assert told() == []
    observed.rpc("evm_revert", snapshot)
    assert told() == []


def fewer(question: Any, reply: Any) -> Any:
    """Tell nonces of a time when two transactions fewer were mined."""
    is_nonce = question["method"] == "eth_getTransactionCount"
    return [reply | {"result": hex(int(reply["result"], 16) - 2)} if is_nonce else reply]


def test_transactions_of_a_key_before_its_first_start_are_not_reported(chain, db, settings, tmp_path: Path):
    steal(chain)
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    assert told() == []
    with changed_replies(settings, chain, fewer) as url:
        assert told() == []
    reconfigure(settings, url, chain.url)
    chain.mine(100)
    assert told() == []
    steal(chain, 1)
    (sentence,) = told()
    assert "has used 1 nonce for" in sentence


@pytest.mark.long
@pytest.mark.parametrize("is_resumed", [False, True], ids=["first start", "resume"])
@pytest.mark.parametrize(
    ("proves", "words"), [(True, "has used 1 nonce for"), (False, "seems to have used 1 nonce for")]
)
def test_an_only_node_that_once_told_a_nonce_too_high_hides_no_later_thief(
    chain, db, settings, tmp_path, is_resumed, proves, words
):
    is_lying = True

    def change(question: Any, reply: Any) -> list[Any]:
        is_newest = question["params"][1:] == ["latest"] and is_of_nonce(question)
        if is_lying and is_newest:
            return [reply | {"result": hex(int(reply["result"], 16) + 10**6)}]
        return [reply] if proves and not is_lying else unproven(question, reply)

    with between(chain.url, change) as url:
        settings.CHAINS_FILE = chains_toml(tmp_path, url)
        if is_resumed:
            is_lying = False
            assert told() == []
            is_lying = True
            assert len(told()) == 1
            call_command("resume", "31337", "--signer", users.SIGNER, stdout=StringIO())
        assert told() == []
        is_lying = False
        assert told() == []
        steal(chain, 1)
        (sentence,) = told()
    assert words in sentence


def test_a_node_that_is_behind_at_the_first_start_makes_no_thief(chain, db, settings, tmp_path, monkeypatch):
    steal(chain)
    with between(chain.url, fewer) as url:
        settings.CHAINS_FILE = chains_toml(tmp_path, url, chain='test_network = false\ndaily_limit = "1"')
        with monkeypatch.context() as behind:
            behind.setattr("time.time", lambda: time.clock_gettime(time.CLOCK_REALTIME) + 3600)
            assert told() == []
            assert "clock" in Client().get("/healthz").json()["codes"]
    reconfigure(settings, url, chain.url)
    assert told() == []
    assert told() == []
