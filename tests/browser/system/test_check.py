"""`Check it here`: the browser verifies a batch's bundle. The wallet's node confirms block hashes and the registry."""

import copy
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rlp
from django.core.management import call_command
from eth_utils.crypto import keccak
from playwright.sync_api import BrowserContext, Page, expect

from batch_query_client import claimed_hashes
from batch_query_client import receipts as client_receipts
from chains.tries.header import Header
from chains.tries.trie import EMPTY_CODE_HASH, EMPTY_TRIE_ROOT, InvalidProof, verify_slot
from devnet.devchain import DevChain
from proving import facts
from queries.models import Batch
from tests import fixtures_folder, headers
from tests.browser.conftest import axe_violations, faults_for_anybody
from tests.browser.wallet import DECLINED, NO_SUCH_CHAIN, Wallet
from tests.chains import geth_answers
from tests.chains import tries as chain_tries
from tests.client.forged_bundles import FORGERIES, HASH, with_transactions
from tests.contracts import tries, worlds
from tests.contracts.blocks import recorded
from tests.explorer.batches import CONTRACT, SOURCE, batch_at, bundle_of, everything, path, proven_by, word
from tests.explorer.made_tries import asked_of_everything, prove
from tests.queries.named_slots import NAMED_SLOTS, STATED, WRONG_NAMES
from tests.service import BOB, work_until_done

pytestmark = pytest.mark.django_db(transaction=True)

# Blocks of all types of receipts. The large ones may be missing.
RECEIPTS = [
    name
    for name in ("eth-mainnet-1000000", "arbitrum-one-150000000", "op-mainnet-154497277", "eth-mainnet-20472570")
    if f"{name}.json" in fixtures_folder.fixture_names("receipts/*.json")
]

_VERIFY = (Path(__file__).parents[1] / "verify.js").read_text("utf-8")


@pytest.fixture
def made(site: str, tmp_path: Path) -> Batch:
    """Return a DONE batch of two source chains, made without a chain."""
    batch = asked_of_everything(tmp_path)
    prove(batch)
    return batch


def verified(
    page: Page, batch: Batch, documents: dict[str, str], request: Any = None, *, only: int | None = None
) -> dict[str, Any]:
    """Verify bundles in the batch's page. Return for each the error's name and sentence, or the proven facts."""
    request = request or json.loads(batch.request)
    if not page.url.endswith(path(batch)):
        page.goto(path(batch))
    verdicts: dict[str, Any] = page.evaluate(_VERIFY, [batch.pk, request, documents, only])
    return verdicts


# --- Bundles ----------------------------------------------------------------------------------------------------------


def with_transactions_asked(batch: Batch) -> Any:
    """Return the batch's request, with the transactions that `with_transactions` adds to its bundle."""
    request = json.loads(batch.request)
    names = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT"]
    # The block's third log is the first one's third, or another one that the request names.
    first = {"props": names, "logs": ["2"], "blockLogs": ["2", "0"]}
    request["data"]["31337"]["block:20"] = {"transactions": {"0": first}}
    second = {"props": [*names, "HASH"], "logs": ["0"]}
    request["data"]["31337"][f"transaction:0x{HASH[2:].upper()}"] = {
        "transactions": {HASH.upper().replace("X", "x"): second}
    }
    return request


@pytest.mark.long
def test_a_valid_bundle_shows_the_same_facts_as_the_python_client(page: Page, made: Batch):
    bundle = with_transactions(bundle_of(made))
    shown = verified(page, made, {"": json.dumps(bundle)}, with_transactions_asked(made))[""]
    assert shown["unshown"] == [[8], []]
    hashes = claimed_hashes(json.dumps(bundle))
    assert shown["hashes"] == {f"{chain}/{number}": told for (chain, number), told in hashes.items()}
    for mine, (number, proven) in zip(shown["queries"], proven_by(bundle).queries.items(), strict=True):
        about = mine["number"], int(mine["chain"]), int(mine["blockNumber"]), mine["blockHash"]
        assert about == (number, proven.source_chain_id, proven.block_number, proven.block_hash)
        assert mine["account"] == proven.account
        assert mine["facts"] == {name: f"0x{word.hex()}" for name, word in proven.facts.items()}
        assert mine["slots"] == {slot: f"0x{word.hex()}" for slot, word in proven.slots.items()}
        of_transaction = None if proven.transaction is None else str(proven.transaction)
        assert (mine["transaction"], mine["transactionHash"]) == (of_transaction, proven.transaction_hash)
        assert mine["logs"] == {
            str(index): f"0x{client_receipts.log_hash(log).hex()}" for index, log in proven.logs.items()
        }


@pytest.mark.long
def test_a_bundle_of_0_4_0_with_the_next_header_verifies(page: Page, made: Batch):
    bundle = json.loads((Path(__file__).parents[2] / "client/bundle_of_0_4_0.json").read_text()) | {"batch": made.pk}
    earlier, new = verified(page, made, {"earlier": json.dumps(bundle), "new": json.dumps(bundle_of(made))}).values()
    assert earlier == new


@pytest.mark.story
def test_no_forgery_holds_in_a_browser(page: Page, made: Batch):
    bundle = with_transactions(bundle_of(made))
    documents: dict[str, str] = {}
    for name, (change, _) in FORGERIES.items():
        forged = copy.deepcopy(bundle)
        change(forged)
        documents[name] = json.dumps(forged)
    outcomes = verified(page, made, documents)
    assert len(outcomes) == len(FORGERIES) > 60
    for name, (_, sentence) in FORGERIES.items():
        assert isinstance(outcomes[name], str), name
        assert re.fullmatch(rf"Refusal: [^\n]*({sentence})[^\n]*\.", outcomes[name]), (name, outcomes[name])


@pytest.mark.long
def test_the_proof_of_one_query_shows_what_that_of_the_batch_shows(page: Page, made: Batch):
    of_all = verified(page, made, {"": json.dumps(bundle_of(made))})[""]
    for of_batch in of_all["queries"]:
        number = of_batch["number"]
        bundle = bundle_of(made, number)
        documents = {"": json.dumps(bundle), "more": json.dumps(bundle_of(made))}
        shown = verified(page, made, documents, only=number)
        assert shown[""]["queries"] == [of_batch]
        assert shown[""]["hashes"].items() <= of_all["hashes"].items()
        assert number == 1 or "numbered from 1, without gaps or repetitions" in shown["more"]
        (alone,) = verified(page, made, {"": json.dumps(bundle)}).values()
        assert re.match("Refusal: .*(numbered from 1, without gaps or repetitions|which was asked for)", alone)
        (renumbered,) = verified(page, made, {"": json.dumps(bundle)}, only=number + 1).values()
        assert "numbered from 1, without gaps or repetitions" in renumbered
        less = json.loads(made.request)
        for blocks in less["data"].values():
            blocks.pop(bundle["queries"][0]["selector"], None)
        (unasked,) = verified(page, made, {"": json.dumps(bundle)}, less, only=number).values()
        assert unasked == "Refusal: The bundle has a query that was not asked for."


WRONG_REQUESTS: dict[str, tuple[Callable[[Any], object], str]] = {
    "another destination": (lambda r: r.update(destinationChainId="1"), "for another destination chain"),
    "an account more": (
        lambda r: at_block(r, 12)["accounts"].update({"0x" + "11" * 20: {"props": ["NONCE"]}}),
        "lacks NONCE of 0x1111111111111111111111111111111111111111 at block:12 of chain 31337",
    ),
    "an account less": (lambda r: at_block(r, 13)["accounts"].popitem(), "a query that was not asked for"),
    "a property more": (lambda r: at_block(r, 12)["header"].append("TIMESTAMP"), "lacks TIMESTAMP of the header"),
    "a property less": (lambda r: at_block(r, 12)["header"].pop(), "has more of the header at block:12"),
    "another slot": (lambda r: accounts_with_slots(r)[0].update(slots=["0x5", "0x7"]), f"lacks {word(7)}"),
    "a slot less": (lambda r: accounts_with_slots(r)[0].update(slots=["0x5"]), "has more of 0x"),
    "another block": (lambda r: rename(r, "block:13", "block:11"), "lacks NONCE of .* at block:11"),
    "another time": (lambda r: rename(r, "timestamp:1700000005", "timestamp:1700000006"), "lacks NONCE of .* at time"),
    "another chain": (lambda r: r["data"].update({"1": r["data"].pop(str(SOURCE))}), "lacks BALANCE of .* of chain 1"),
}


WRONG_TRANSACTIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "another index": (lambda r: rekey(r, "block:20", "0", "1"), "lacks STATUS of transaction 1 at block:20"),
    "another hash": (
        lambda r: rekey(r, f"transaction:0x{HASH[2:].upper()}", None, word(1)),
        f"lacks STATUS of transaction {word(1)}",
    ),
    "a hash that is not proven": (
        lambda r: rekey(r, "block:20", "0", HASH),
        f"lacks STATUS of transaction {HASH} at bl",
    ),
    "a log more": (lambda r: transaction(r)["logs"].append("1"), "lacks log 1 of transaction 0 at block:20"),
    "a log of the block more": (
        lambda r: transaction(r)["blockLogs"].append("1"),
        "lacks a log of transaction 0 at blo",
    ),
    "logs less": (lambda r: transaction(r).update(blockLogs=[]), "has more of transaction 0 at block:20"),
    "a property less": (lambda r: transaction(r)["props"].pop(), "has more of transaction 0 at block:20"),
    "no transaction": (lambda r: r["data"]["31337"].pop("block:20"), "a query that was not asked for"),
}


def transaction(request: Any) -> Any:
    return at_block(request, 20)["transactions"]["0"]


def rekey(request: Any, selector: str, old: str | None, new: str) -> None:
    entries = request["data"]["31337"][selector]["transactions"]
    entries[new] = entries.pop(old or next(iter(entries)))


@pytest.mark.long
def test_a_proof_of_another_transaction_or_log_than_was_asked_for_is_refused(page: Page, made: Batch):
    documents = {"": json.dumps(with_transactions(bundle_of(made)))}
    for name, (change, sentence) in WRONG_TRANSACTIONS.items():
        request = with_transactions_asked(made)
        change(request)
        outcome = verified(page, made, documents, request)[""]
        assert isinstance(outcome, str), (name, outcome)
        assert re.search(f"^Refusal: .*{sentence}", outcome), (name, outcome)
    # The bundle shows the block of a hash that none of its queries proves.
    request = with_transactions_asked(made)
    rename(request, "block:20", f"transaction:{word(1)}")
    bundle = with_transactions(bundle_of(made))
    bundle["queries"][7]["selector"] = f"transaction:{word(1)}"
    assert verified(page, made, {"": json.dumps(bundle)}, request)[""]["unshown"] == [[8], [8]]


def at_block(request: Any, number: int) -> Any:
    return request["data"]["31337"][f"block:{number}"]


def accounts_with_slots(request: Any) -> list[Any]:
    return [entry for entry in at_block(request, 12)["accounts"].values() if entry.get("slots")]


def rename(request: Any, old: str, new: str) -> None:
    blocks = request["data"]["31337"]
    blocks[new] = blocks.pop(old)


def test_a_proof_of_something_else_than_was_asked_for_is_refused(page: Page, made: Batch):
    bundle = bundle_of(made)
    documents = {"": json.dumps(bundle)}
    for name, (change, sentence) in WRONG_REQUESTS.items():
        request = json.loads(made.request)
        change(request)
        outcome = verified(page, made, documents, request)[""]
        assert isinstance(outcome, str), name
        assert re.search(f"^Refusal: .*{sentence}", outcome), (name, outcome)
    forged = {
        "batch": bundle | {"batch": "01M7W1MRHW703BTRFFPT53VVP5"},
        "selector": bundle | {"queries": [bundle["queries"][0] | {"selector": "block:13"}, *bundle["queries"][1:]]},
        "time": bundle | {"queries": [bundle["queries"][0] | {"timestamp": "1700000005"}, *bundle["queries"][1:]]},
        "name": bundle | {"queries": [bundle["queries"][0] | {"name": "0x" + "11" * 20}, *bundle["queries"][1:]]},
        "twice": bundle
        | {"queries": [*bundle["queries"], bundle["queries"][0] | {"number": len(bundle["queries"]) + 1}]},
    }
    documents = {name: json.dumps(document) for name, document in forged.items()}
    # The slot has a character that is no hex digit. The registry address is too short.
    documents["slot"] = documents["batch"].replace(f'"{word(5)}":', f'"{word(0)[:-1]}%":')
    documents["registry"] = documents["batch"].replace(bundle["blocks"][0]["factsRegistry"], "0x12")
    assert verified(page, made, documents) == {
        "slot": "Refusal: Query 2: The bundle's slot is not 32 bytes in hex.",
        "registry": "Refusal: The bundle's factsRegistry is not 20 bytes in hex.",
        "batch": "Refusal: The bundle belongs to another batch.",
        "selector": "Refusal: The block of query 1 is not the one asked for.",
        "time": "Refusal: The time of query 1 is not the one asked for.",
        "name": "Refusal: The name of query 1 is an address.",
        "twice": f"Refusal: Query {len(bundle['queries']) + 1} is about the same as one before.",
    }


# --- Parts of proofs, compared with the service -----------------------------------------------------------------------

_PARTS = (Path(__file__).parents[1] / "parts.js").read_text("utf-8")


def told(page: Page, cases: list[tuple[str, bytes, bytes, list[bytes]]]) -> list[Any]:
    """Verify proofs in the page. Return for each the result in words, or the error's name and sentence."""
    page.goto("/")
    written = [[part, root.hex(), key.hex(), [node.hex() for node in nodes]] for part, root, key, nodes in cases]
    results: list[Any] = page.evaluate(_PARTS, written)
    return results


def test_no_malformed_node_or_account_is_taken(page: Page):
    slot, itself, another = bytes(32), bytes(20), b"\1" * 20
    cases, faults = [], []
    for case in chain_tries.MALFORMED:
        nodes: Any
        nodes, fault = case.values
        cases.append(("slot", *at(slot, *chain_tries.chained(*nodes))))
        faults.append(fault)
    others = [rlp.encode([b"", b"", EMPTY_TRIE_ROOT]), rlp.encode([b"", b"", EMPTY_TRIE_ROOT, EMPTY_CODE_HASH, b""])]
    for fields in (*chain_tries.MALFORMED_ACCOUNTS, *others):
        leaf = chain_tries.chained([tries.hex_prefix(keccak(itself).hex(), leaf=True), fields])
        for address in (itself, another):
            cases.append(("account", *at(address, *leaf)))
            faults.append("account is malformed")
    for root, nodes in ((EMPTY_TRIE_ROOT, [b"\x80", b"\x80"]), (EMPTY_TRIE_ROOT, [b""]), (keccak(b""), [b""])):
        cases.append(("slot", *at(slot, root, nodes)))
        faults.append("the trie is empty|is not canonical")
    for outcome, fault in zip(told(page, cases), faults, strict=True):
        assert re.match(f"Refusal: .*({fault})", outcome), (outcome, fault)


def at(key: bytes, root: bytes, nodes: list[bytes]) -> tuple[bytes, bytes, list[bytes]]:
    return root, key, nodes


def test_of_any_trie_it_tells_what_the_service_s_verifier_tells(page: Page):
    """The cases are proofs of existing and absent slots, complete, with a node missing, and with a node too many."""
    cases, expected = [], []
    for size in (1, 2, 17, 300):
        slots = {slot: slot**9 % 2**256 or 1 for slot in range(size)} | dict.fromkeys(worlds.NEAR_SLOTS, 5)
        built = chain_tries.storage_trie(slots)
        for slot in [*list(slots)[:: max(1, size // 20)], *worlds.NEAR_SLOTS, *range(size, size + 20)]:
            nodes = chain_tries.slot_proof(built, slot)
            for proof in (nodes, nodes[:-1], [*nodes, nodes[-1]], nodes[::-1]):
                cases.append(("slot", built.root_hash, slot.to_bytes(32), proof))
                try:
                    expected.append(f"{verify_slot(built.root_hash, slot, proof):064x}")
                except InvalidProof:
                    expected.append("Refusal")
    outcomes = [outcome.partition(":")[0] for outcome in told(page, cases)]
    assert outcomes == expected
    assert {"Refusal", f"{0:064x}", f"{5:064x}"} < set(expected)


def test_receipts_are_read_as_the_client_reads_them(page: Page):
    cases, expected = [], []
    for name in RECEIPTS:
        block = recorded(name)
        for part, root, values in zip(
            ("transaction", "receipt"), block.roots, (block.transactions, block.values), strict=True
        ):
            built = tries.build({rlp.encode(index): value for index, value in enumerate(values)})
            for index in {0, 1, 127, 128, len(values) - 1} & {*range(len(values))}:
                nodes = tries.proof(built, rlp.encode(index))
                cases += [(part, *at(at_index.to_bytes(2), root, nodes)) for at_index in (index, index + 1)]
                fields = client_receipts.decode(values[index]) if part == "receipt" else None
                words = {name: word.hex() for name, word in fields.words.items()} if fields else {}
                expected += [
                    [words, [client_receipts.log_hash(log).hex() for log in fields.logs]]
                    if fields
                    else keccak(values[index]).hex(),
                    None,
                ]
    for typed in chain_tries.TYPED_RECEIPTS:
        root, nodes = chain_tries.chained([tries.hex_prefix("80", leaf=True), typed])
        cases.append(("receipt", *at(bytes(2), root, nodes)))
        fields = client_receipts.decode(typed)
        expected.append([{name: word.hex() for name, word in fields.words.items()}, []])
    for spoilt in chain_tries.MALFORMED_RECEIPTS:
        root, nodes = chain_tries.chained([tries.hex_prefix("80", leaf=True), spoilt])
        cases.append(("receipt", *at(bytes(2), root, nodes)))
        expected.append(None)
    for outcome, wanted in zip(told(page, cases), expected, strict=True):
        assert outcome == wanted if wanted else outcome.startswith("Refusal: "), (outcome, wanted)


def test_headers_of_all_chains_are_read_as_the_service_reads_them(page: Page):
    forms = (*headers.ETHEREUM.values(), *headers.OTHERS.values(), headers.AMSTERDAM | {"own": b"\1"})
    encoded = [headers.encode(form) for form in forms]
    good = headers.encode(headers.PRAGUE)
    malformed = [
        b"",
        b"\xc0",
        good[:-1],
        good + b"\0",
        rlp.encode(list(headers.SHARED.values())[:12]),
        *(headers.encode(headers.PRAGUE, **{name: b"\1" * 33}) for name in list(headers.SHARED)[:12]),
        headers.encode(headers.PRAGUE, stateRoot=bytes(32)),
        headers.encode(headers.PRAGUE, number=b"\0\1"),
        rlp.encode([*list(headers.SHARED.values())[:12], [b""], bytes(32), bytes(8)]),
    ]
    results = told(page, [("header", b"", each, []) for each in (*encoded, *malformed)])
    for each, words in zip(encoded, results, strict=False):
        theirs = facts.header_words(Header.decode(each))
        assert words == {field.name: word.hex() for field, word in theirs.items()}
    assert all(isinstance(outcome, str) and outcome.startswith("Refusal: ") for outcome in results[len(encoded) :])


# --- The page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def proven(page: Page, context: BrowserContext, wallet: Wallet, service: DevChain) -> Batch:
    """Return a DONE batch on a chain. Its page is open, with a wallet that is connected to the chain."""
    wallet.chain = service
    wallet.put_into(context)
    batch = everything(service)
    call_command("deploy_reader", 31337, stdout=io.StringIO())
    page.goto(path(batch))
    return batch


def begin(page: Page) -> None:
    page.get_by_role("button", name="Check it here").click()


def ends(page: Page, sentence: str) -> None:
    expect(page.locator("#check [role=status]")).to_have_text(sentence)
    expect(page.get_by_role("button", name="Check it here")).to_be_enabled()


def steps(page: Page) -> list[str]:
    """Return the texts of the steps. Each begins with the step's state."""
    return [re.sub(r"\s+", " ", text).strip() for text in page.locator("#check > ol > li").all_inner_texts()]


HOLDS = "Confirmed: the registry holds exactly the proven values."
LEFT = "Everything checked is correct. Items marked “Not checked” need your wallet."
FAILS = "The proof is wrong, as the last step says."


@pytest.mark.long
def test_all_steps_pass_by_a_wallet_that_is_asked_to_read_alone(page: Page, wallet: Wallet, proven: Batch):
    begin(page)
    ends(page, HOLDS)
    shown = steps(page)
    assert [step.partition(" ")[0] for step in shown] == ["Holds:"] * 6
    assert re.search(r"Each fact follows from the hashes of \d blocks?, by \d+ trie nodes\.", shown[1])
    assert shown[3] == "Holds: Test Wallet knows this block of Development chain (31337)."
    assert re.search(r"Test Wallet reads 29 facts on Development chain \(31337\) from 0x\w{40}, as proven\.", shown[4])
    assert set(wallet.asked) == {"eth_chainId", "eth_getBlockByNumber", "eth_call"}
    assert re.search(
        r"The facts reader 0x\w{40} on Development chain \(31337\) takes 3 proofs in its own call", shown[5]
    )
    assert wallet.asked.count("eth_call") == 29 + 3
    expect(page.get_by_role("button", name="Check it here")).to_be_focused()
    # The page refreshes when the batch's gas changes. The result must stay.
    Batch.objects.update(gas_used=123_456)
    expect(page.locator("#batch")).to_contain_text("123,456 gas")
    assert steps(page) == shown
    # After a stop that comes while the page looks for wallets, it asks none.
    page.evaluate(
        """new MutationObserver(() => {
            const area = document.getElementById("check");
            if (area.innerText.includes("Looking for wallets")) area.querySelector(".actions button")?.click();
        }).observe(document.getElementById("check"), { subtree: true, childList: true })"""
    )
    wallet.asked.clear()
    begin(page)
    ends(page, "Stopped. Nothing more was checked.")
    assert wallet.asked == []


@pytest.mark.long
def test_a_facts_reader_takes_the_proofs_of_slots_under_a_root_that_is_a_fact(
    page: Page, wallet: Wallet, proven: Batch, service: DevChain
):
    for slot in range(1, 60):
        service.rpc("anvil_setStorageAt", CONTRACT, hex(slot), word(slot**9))
    service.mine()
    account = {"props": ["STORAGE_ROOT"], "slots": ["0x7", "0x100"]}
    batch = work_until_done(batch_at(**{f"block_{service.head()}": {"accounts": {CONTRACT: account}}}), service)
    page.goto(path(batch))
    begin(page)
    ends(page, HOLDS)
    assert "takes 3 proofs in its own call, with the same values." in steps(page)[-1]
    page.eval_on_selector("data[data-reader]", "(data) => data.dataset.reader = '0x' + '11'.repeat(20)")
    begin(page)
    ends(page, FAILS)
    assert re.search(r"Wrong: The facts reader 0x(11){20} has a different word than .*: 0x\.", steps(page)[-1])


@pytest.mark.long
def test_contradictions_by_a_wallet_are_shown_and_its_refusals_leave_hashes_to_be_trusted(
    page: Page, wallet: Wallet, proven: Batch
):
    other = {"hash": word(1)}
    revert = geth_answers.REFUSALS["a revert"][:2]
    for lies, refuses, sentence in (
        ({"eth_getBlockByNumber": other}, {}, rf"Wrong: Test Wallet knows another block \d+ .*{word(1)}\."),
        ({"eth_getBlockByNumber": None}, {}, r"Wrong: Test Wallet knows no block \d+ of Development chain"),
        ({"eth_call": word(1)}, {}, rf"Wrong: The facts registry 0x\w+ has a different word than .*: {word(1)}\."),
        ({"eth_call": "0x"}, {}, r"Wrong: The facts registry 0x\w+ has a different word than"),
        ({}, {"eth_call": revert}, r"Wrong: The facts registry 0x\w+ doesn't hold NONCE of 0x"),
    ):
        wallet.lies, wallet.refuses = lies, refuses
        begin(page)
        ends(page, FAILS)
        assert re.search(sentence, steps(page)[-1]), steps(page)
    wallet.lies = {}
    block = bundle_of(proven)["blocks"][0]
    for chain_id, refusal, sentence in (
        (1, DECLINED, "You declined in Test Wallet."),
        (1, NO_SUCH_CHAIN, "Test Wallet doesn't have Development chain (31337)."),
        (31337, (-32000, "header not found"), "Test Wallet refused: “header not found”."),
    ):
        wallet.chain_id = chain_id
        wallet.refuses = dict.fromkeys(("wallet_switchEthereumChain", "eth_getBlockByNumber", "eth_call"), refusal)
        begin(page)
        ends(page, LEFT)
        *_, hashes, registry, reader = steps(page)
        assert hashes.startswith(f"Not checked: {sentence}")
        assert f"{block['blockNumber']} with the hash {block['blockHash']}" in hashes
        assert "the facts registry on Development chain (31337) holds this" in registry
        assert "the facts reader on Development chain (31337) takes these proofs" in reader
    wallet.refuses.clear()
    wallet.chain_id = 1
    begin(page)
    ends(page, HOLDS)
    assert wallet.chain_id == 31337


@pytest.mark.long
def test_without_a_wallet_it_says_which_hashes_are_trusted(page: Page, made: Batch, context: BrowserContext):
    page.goto(path(made))
    begin(page)
    ends(page, LEFT)
    shown = steps(page)
    assert [step.partition(":")[0] for step in shown] == ["Holds"] * 3 + ["Not checked"] * 3
    for block in bundle_of(made)["blocks"]:
        assert f"{block['blockNumber']} with the hash {block['blockHash']}" in " ".join(shown)
    assert shown[3].startswith("Not checked: There is no wallet in this browser. It remains to be trusted that")
    assert shown[5].endswith("holds this, and that the block of query 6 was the latest at its time.")
    assert faults_for_anybody(page) == []


@pytest.mark.long
def test_slots_by_name_are_computed_from_the_request(page: Page, site: str):
    names = [name for name, _ in NAMED_SLOTS] + [NAMED_SLOTS[0][0] | STATED, {"slot": "6", "keys": [], "call": "f()"}]
    batch = asked_of_everything(None, {BOB: {"slots": ["0x5", *names]}})
    prove(batch)
    page.goto(path(batch))
    begin(page)
    ends(page, LEFT)
    assert "Holds: Matches the request: 7 queries, and no more." in steps(page)
    documents = {"": json.dumps(bundle_of(batch))}

    def outcome_with(*slots: Any) -> str:
        request = json.loads(batch.request)
        at_block(request, 12)["accounts"][BOB]["slots"] = ["0x5", *slots]
        return str(verified(page, batch, documents, request)[""])

    assert re.match(r"Refusal: The bundle lacks 0x\w{64} of", outcome_with(*names[1:], names[0] | {"layout": "vyper"}))
    # The service alone refuses likely mistakes, which have a slot.
    wrong = [name for _, name, sentence in WRONG_NAMES if not re.search("EIP-55|An address has|below 2", sentence)]
    for name in (*wrong, {"slot": "1", "keys": [{"key": "\ud800", "type": "string"}]}, None, 5, "0x", "0x1g"):
        assert "malformed storage slot or slot name." in outcome_with(*names, name), name


@pytest.mark.long
def test_a_forged_proof_is_refused_on_the_page(page: Page, made: Batch):
    forged = bundle_of(made)
    forged["queries"][0]["facts"]["BALANCE"] = word(1)
    answers: list[dict[str, Any]] = [
        {"body": json.dumps(forged)},
        {"body": json.dumps(bundle_of(made) | {"batch": "01M7W1MRHW703BTRFFPT53VVP5"})},
        {"body": "{"},
        {"status": 429, "body": json.dumps({"error": "Ask again in 5 s."})},
        {"status": 502, "body": "<html>"},
    ]
    sentences = [
        (FAILS, "Wrong: Query 1: The proof shows another BALANCE than the bundle claims."),
        (FAILS, "Wrong: The bundle belongs to another batch."),
        (FAILS, "Wrong: The file is not JSON."),
        ("The check failed.", "Wrong: Ask again in 5 s."),
        ("The check failed.", "Wrong: This service answered with error 502. Try again in a moment."),
    ]
    page.goto(path(made))
    bundles = iter(answers)
    page.route("**/bundle.json", lambda route: route.fulfill(**next(bundles)))
    for end, step in sentences:
        begin(page)
        ends(page, end)
        assert steps(page)[-1] == step
    assert axe_violations(page) == []
