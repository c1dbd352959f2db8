"""What pages say of old blocks, of blocks of other chains, and of who is trusted for them."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from proving.registry.deploying import deploy
from queries import progress
from queries.models import Batch, BatchStatus, Block, PathUnit, Query, StepKind
from tests.attesting import process
from tests.explorer.batches import (
    BLOCK_HASH_SOURCE,
    HASH,
    REGISTRY,
    SOURCE,
    TRANSACTION,
    a_batch,
    accept,
    beat,
    bundle_of,
    complete,
    connect_source,
    deployed,
    fetch_proofs,
    many_accounts,
    mine,
    of_two_sources,
    page,
    path,
    plan_path,
    proven_by,
    send,
    settle,
)
from tests.explorer.pages import sent, shown_steps, text_of
from tests.factories import is_done, until
from tests.service import CHARLIE, a_key, chains_toml, request, submit, work, work_until_done

pytestmark = pytest.mark.django_db

CONTRADICTION = "Attesters contradict the nodes of chain 5 about block 9."


def an_old_batch(*accounts: str) -> Batch:
    """Its header is being accumulated."""
    batch = a_batch(*accounts)
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    return batch


def step(batch: Batch, number: int = 3) -> str:
    return shown_steps(page(batch))[number - 1]


# --- The path to a block ----------------------------------------------------------------------------------------------


def test_a_path_under_way_shows_how_far_it_is_what_it_took_and_how_long_it_will_take():
    batch = an_old_batch()
    plan_path(batch, 100, left=70)
    assert step(batch).endswith("hops 30 of 100 done"), "No worker runs, so that nobody knows."
    beat()
    assert "hops 30 of 100 done, less than a minute left" in step(batch)
    mine(send(batch, extends=deployed()), block=14)
    plan_path(batch, 4_000, left=2_400)
    # 2,400 hops are 120 transactions of 3 blocks of 1 s.
    assert "hops 1,600 of 4,000 done, 175,840 gas so far, about 6 min left" in step(batch)
    assert '<progress value="1600" max="4000" aria-label="Path to the block of query 1">' in page(batch)
    plan_path(batch, 17_000, left=17_000, unit=PathUnit.HEADERS)
    assert "headers 0 of 17,000 done, 175,840 gas so far, about 5 min left" in step(batch)


def test_a_path_that_is_done_says_what_it_was():
    batch = an_old_batch()
    mine(send(batch, extends=deployed()), block=14)
    plan_path(batch, 10, left=0)
    assert "reached by 10 hops, 175,840 gas 1 transaction on the path" in step(batch)
    plan_path(batch, 1, left=0, unit=PathUnit.HEADERS)
    complete(batch, StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)
    assert "reached by 1 header, 175,840 gas" in step(batch)


def test_a_block_that_its_source_vouches_for_is_no_path_of_no_hops():
    batch = an_old_batch()
    plan_path(batch, 0, left=0)
    mine(send(batch, extends=deployed()), block=14)
    assert "waiting for the block hash source to vouch for this block, 175,840 gas" in step(batch)
    complete(batch, StepKind.HEADER_ACCUMULATED)
    assert "vouched for by the block hash source, 175,840 gas" in step(batch)


def test_a_block_that_needs_no_path_shows_none():
    batch = an_old_batch()
    mine(send(batch), block=14)
    assert "on the path" not in step(batch)
    assert step(batch).endswith(f"Transaction {TRANSACTION}")
    more = "Nonce, gas and price Nonce 0 Gas 175,840"
    assert sent(page(batch)) == [f"{TRANSACTION} {more} BALANCE in block 14, 1 of 1 confirmation"]


def test_each_transaction_of_the_path_is_linked_once_and_only_the_last_is_the_step_s():
    batch = an_old_batch()
    registry = deployed()
    plan_path(batch, 30, left=10)
    for number, tx_hash in enumerate((TRANSACTION, HASH)):
        mine(send(batch, tx_hash=tx_hash, extends=registry), block=14 + number)
    html = page(batch)
    for tx_hash in (TRANSACTION, HASH):
        assert html.count(f'href="https://scan.example/tx/{tx_hash}"') == 1
    assert "351,680 gas so far" in text_of(html)
    assert "2 transactions on the path" in text_of(html)
    final = "0x" + "fe" * 32
    mine(send(batch, tx_hash=final), block=16)
    text = text_of(page(batch))
    assert "351,680 gas so far" in text
    assert f"Transaction {final}" in text
    assert [row[:66] for row in sent(page(batch))] == [final, HASH, TRANSACTION]


def test_what_records_a_block_s_hash_is_shown_on_the_step_that_waits_for_it():
    batch = a_batch()
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    mine(send(batch, extends=deployed()), block=14)
    assert f"Transaction {TRANSACTION}" in step(batch, 2)
    plan_path(batch, 3, left=3)
    assert f"Transaction {TRANSACTION}" in step(batch, 2)
    complete(batch, StepKind.BLOCKHASH_AVAILABLE)
    beat()
    assert "hops 0 of 3 done, 175,840 gas so far, less than a minute left 1 transaction on the path" in step(batch)


def test_what_was_sent_for_another_batch_on_the_same_block_is_part_of_its_path():
    other, batch = an_old_batch(), an_old_batch()
    plan_path(batch, 30, left=10)
    mine(send(other, extends=deployed()), block=14)
    assert "hops 20 of 30 done, 175,840 gas so far" in step(batch)
    elsewhere = a_batch(block=13)
    accept(elsewhere)
    complete(elsewhere, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
    plan_path(elsewhere, 30, left=30)
    assert "175,840" not in step(elsewhere)


def test_a_rejected_batch_has_no_time_left():
    batch = an_old_batch()
    plan_path(batch, 30, left=10)
    Batch.objects.update(status=BatchStatus.REJECTED)
    assert "hops 20 of 30 done" in step(batch)
    assert "left" not in step(batch)


def test_paths_cost_as_many_statements_however_many_queries_and_transactions_there_are():
    statements = []
    for count in (1, 10):
        batch = submit(a_key(name=str(count)), request(*many_accounts(count), block=count))
        accept(batch)
        complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
        plan_path(batch, 30, left=10)
        for number in range(count):
            send(batch, tx_hash=f"0x{count:032x}{number:032x}", extends=deployed())
        with CaptureQueriesContext(connection) as captured:
            assert f"{count} transaction" in page(batch)
        statements.append(len(captured))
    assert statements[0] == statements[1] <= 23


def test_the_json_has_the_path():
    batch = an_old_batch()
    assert Client().get(f"{path(batch)}.json").json()["queries"][0]["path"] is None
    plan_path(batch, 30, left=10)
    mine(send(batch, extends=deployed()), block=14)
    (query,) = Client().get(f"{path(batch)}.json").json()["queries"]
    (transaction,) = query["path"].pop("transactions")
    expected = {"unit": "hops", "length": 30, "left": 10, "gas": 175_840, "secondsLeft": 3, "origin": None}
    assert query["path"] == expected
    assert (transaction["hash"], transaction["gasUsed"]) == (TRANSACTION, 175_840)
    assert query["isAdmitted"]


# --- Who is trusted ---------------------------------------------------------------------------------------------------


def test_it_says_for_each_source_chain_who_is_trusted_and_which_contracts_hold_it(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    deployed(SOURCE)
    text = text_of(page(batch))
    assert (
        "Source chain Other chain (5) Block hashes Attested: signatures of independent attesters Who is trusted 2 of 2 "
        "attesters, who sign hashes of final blocks of Other chain."
    ) in text
    assert f"Facts registry {REGISTRY} Block hash source {BLOCK_HASH_SOURCE} " in text
    native = text[text.index("Source chain Development chain (31337) Block hashes Native: ") :]
    assert " it knows the hashes of its own blocks. Facts registry not deployed yet" in native


def test_a_source_chain_that_is_not_connected_any_more_is_left_out(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    chains_toml(tmp_path, "http://127.0.0.1:1")
    forget_chains()
    trusted = text_of(page(batch)).split("Why blocks are trusted")[1]
    assert "Native" in trusted
    assert "attesters" not in trusted


def test_the_json_says_who_is_trusted():
    batch = a_batch()
    deployed()
    (source,) = Client().get(f"{path(batch)}.json").json()["sources"]
    assert source["source"]["id"] == 31337
    assert source["title"].startswith("Native")
    assert (source["factsRegistry"], source["blockHashSource"]) == (REGISTRY, BLOCK_HASH_SOURCE)


def test_a_notice_about_a_source_of_the_batch_is_shown_until_nothing_can_change():
    batch = a_batch()
    beat()
    fetch_proofs(batch)
    FactsRegistry.objects.update(notice=CONTRADICTION)
    FactsRegistry.objects.create(destination_chain_id=31337, source_chain_id=SOURCE, notice="Of another source.")
    assert f'<p class="notice">{CONTRADICTION}</p>' in page(batch)
    assert "Of another source." not in page(batch)
    accept(batch)
    complete(batch, *StepKind)
    settle(batch)
    assert CONTRADICTION not in page(batch)


# --- Several source chains --------------------------------------------------------------------------------------------


def test_it_says_which_source_chain_waits_for_what(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    accept(batch)
    accept(batch, SOURCE)
    Block.objects.update(waiting_for="Waiting for the signer.")
    assert "Other chain (5), Development chain (31337): Waiting for the signer." in text_of(page(batch))
    Block.objects.filter(source_chain_id=SOURCE).update(waiting_for="Waiting for attesters.")
    text = text_of(page(batch))
    assert "Other chain (5): Waiting for attesters. Development chain (31337): Waiting for the signer." in text
    body = Client().get(f"{path(batch)}.json").json()
    assert [(wait["sentence"], [source["id"] for source in wait["sources"]]) for wait in body["waits"]] == [
        ("Waiting for attesters.", [5]),
        ("Waiting for the signer.", [31337]),
    ]


def test_where_there_is_one_source_chain_no_wait_names_it():
    batch = a_batch()
    accept(batch)
    Block.objects.update(waiting_for="Waiting for the signer.")
    assert "looked: Waiting for the signer." in text_of(page(batch))


def test_a_query_whose_source_chain_is_not_checked_yet_says_so_while_others_go_on(tmp_path):
    connect_source(tmp_path)
    batch = of_two_sources()
    Batch.objects.update(waiting_for="No node of chain 5 can be used.")
    assert "Not admitted yet" not in page(batch)
    accept(batch)
    admitted = list(batch.queries.filter(source_chain_id=31337).values_list("pk", flat=True))
    progress.complete(admitted, StepKind.INITIAL_STATE)
    steps = shown_steps(page(batch))
    said = "Not admitted yet. No node of Other chain can be used."
    assert [said in shown for shown in steps] == [False] * 4 + [True] + [False] * 3
    second = Client().get(f"{path(batch)}.json").json()["queries"][1]
    assert (second["isAdmitted"], second["steps"][0]["waitingFor"]) == (False, "No node of chain 5 can be used.")


def test_a_line_says_how_far_the_path_to_its_block_is():
    batch = an_old_batch(*many_accounts(11))
    assert "hops" not in text_of(page(batch))
    plan_path(batch, 1_000, left=600)
    assert "HEADER_ACCUMULATED hops 400 of 1,000 done 2 0x" in text_of(page(batch))
    complete(batch, StepKind.HEADER_ACCUMULATED)
    assert "hops 400" not in text_of(page(batch))


def test_a_line_says_that_its_query_is_not_admitted_yet():
    batch = a_batch(*many_accounts(11))
    accept(batch)
    complete(batch, StepKind.INITIAL_STATE)
    assert "not admitted yet" not in page(batch)
    Query.objects.filter(position=4).update(is_admitted=False)
    assert re.findall(r'id="row-(\d+)"(?:(?!<tr ).)*not admitted yet', page(batch), re.DOTALL) == ["5"]


# --- On a chain -------------------------------------------------------------------------------------------------------


@pytest.fixture
def old(chain: DevChain, settings, tmp_path) -> DevChain:
    """The service with windows of 10 blocks on a chain of 55."""
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 10")
    forget_chains()
    deploy(31337, 31337)
    chain.mine(50)
    return chain


def test_a_really_old_block_shows_its_path_and_has_a_bundle_that_holds(old: DevChain):
    block = old.head() - 35
    batch = submit(a_key(), request(CHARLIE, block=block))
    for _ in range(10):
        work()
        if Transaction.objects.exclude(extends=None).exists():
            break
    beat()
    assert re.search("hops 0 of 3 done, .* left 1 transaction on the path", step(batch))
    work_until_done(batch, old, rounds=30)
    gas = Transaction.objects.exclude(extends=None).get().gas_used
    assert f"reached by 3 hops, {gas:,} gas 1 transaction on the path" in step(batch)
    verified = proven_by(bundle_of(batch, 1)).queries[1]
    assert (verified.block_number, verified.source_chain_id) == (block, 31337)


def of(account: str, *, source: int, block: int) -> dict[str, Any]:
    """The body that asks for an account of another chain than the destination."""
    return request(account, block=block) | {"data": request(account, block=block, chain_id=source)["data"]}


def test_a_block_of_another_chain_is_read_where_it_is_proven_and_its_bundle_names_its_own_chain(
    service: DevChain, tmp_path
):
    with DevChain(chain_id=SOURCE) as source:
        source.rpc("anvil_setBalance", CHARLIE, "0x7")
        source.mine(5)
        block = source.head() - 3
        attester = process.chains_file(tmp_path / "attester", source.url, chain_id=SOURCE).parent
        with process.running(attester) as running:
            connect_source(tmp_path, source.url, {running.account_address: running.url})
            deploy(31337, SOURCE)
            batch = submit(a_key(), of(CHARLIE, source=SOURCE, block=block))

            def is_proven() -> bool:
                work()
                service.mine()
                return is_done(batch)

            # An attester that takes long to answer is not asked again for a while.
            until(is_proven, "DONE", seconds=90)
    text = text_of(page(batch))
    assert "BALANCE 0.000000000000000007 ETH" in text
    assert "vouched for by the block hash source, " in text
    assert "Set RPC_URL to a node of this chain, not of the source chain." in text
    # The source chain is gone by now, but not what was proven of it.
    assert "the registry answers as proven." in Client().post(f"{path(batch)}/1/read").text
    verified = proven_by(bundle_of(batch, 1)).queries[1]
    assert (verified.block_number, verified.source_chain_id) == (block, SOURCE)


# --- A jump -----------------------------------------------------------------------------------------------------------


def test_a_jump_is_named_with_the_block_where_it_begins():
    batch = an_old_batch()
    plan_path(batch, 1, left=1, unit=PathUnit.JUMPS)
    Block.objects.update(path_origin=22_000_000)
    assert "by the beacon chain, from block 22000000" in step(batch)
    assert "reached" not in step(batch)
    # It has no lane of its own in the timeline, as it is a part of what proves the facts.
    assert "Path to block" not in page(batch)
    plan_path(batch, 1, left=0, unit=PathUnit.JUMPS)
    assert "reached by the beacon chain, from block 22000000" in step(batch)
    Block.objects.update(path_origin=None)
    assert "reached by the beacon chain" in step(batch)
    assert "from block" not in step(batch)
