"""`POST /submit-batch-query`: stored rows and all refusals."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from queries.models import Batch, BatchStatus, Block, Query, StepKind, StepStatus
from tests.queries.named_slots import NAMED_SLOTS, STATED, WRONG_NAMES, WRONG_STATEMENTS
from tests.queries.submissions import LOCKS, STATEMENTS_OF_A_SUBMISSION, faults
from tests.service import ALICE, BOB, HEADER_FIELDS, header, request, secret_of

pytestmark = pytest.mark.outside

MAX_FAULTS_LISTED = 1000

# --- Stored rows ------------------------------------------------------------------------------------------------------


def test_a_submission_stores_the_batch_and_answers_with_its_id(post, key):
    response = post(request(ALICE, block=12, fee=5))
    assert response.status_code == 200
    assert list(response.json()) == ["internalId"]
    batch = Batch.objects.get(pk=response.json()["internalId"])
    assert len(batch.pk) == 26
    assert (batch.status, batch.fee, batch.destination_chain_id) == (BatchStatus.RECEIVED, 5, 31337)
    assert (batch.user, batch.api_key) == (key.user, key)
    query = batch.queries.get()
    block = Block.objects.get(queries=query)
    assert (query.address, block.number, block.source_chain_id) == (ALICE, 12, 31337)
    step = query.steps.get()
    assert (step.kind, step.status) == (StepKind.INITIAL_STATE, StepStatus.IN_PROGRESS)


def test_a_self_funded_batch_needs_no_fee(post):
    body = request(ALICE, block=12)
    for fee in ({"fee": "0"}, {}):
        del body["fee"]
        assert post(body | fee | {"sender": "self"}).status_code == 200
        body["fee"] = "0"
    assert list(Batch.objects.values_list("sender", "fee")) == [("self", 0)] * 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sender": "operator"}, {"/sender": "The sender is self, or is left out; it can't be 'operator'."}),
        ({"sender": None}, {"/sender": "The sender is self, or is left out; it can't be null."}),
        ({"sender": ["self"]}, {"/sender": "The sender is self, or is left out; it can't be a list."}),
        (
            {"sender": "self", "fee": "1"},
            {"/fee": "You pay for this batch yourself, so it has no fee"},
        ),
        ({"sender": "self", "fee": None}, {"/fee": "The fee, in wei, must be a decimal string"}),
        ({"sender": "self", "fee": 0, "data": {}}, {"/fee": "The fee, in wei, must be", "/data": "'data' is empty"}),
        ({"sender": "SELF", "fee": "x"}, {"/sender": "The sender is self", "/fee": "The fee, in wei, must be"}),
    ],
)
def test_every_fault_of_the_sender_and_its_fee_is_named(post, changes, expected):
    fault_by_path = faults(post(request(ALICE, block=12) | changes))
    assert fault_by_path.keys() == expected.keys()
    for path, beginning in expected.items():
        assert fault_by_path[path][0] == "invalid_request"
        assert fault_by_path[path][1].startswith(beginning)
    assert not Batch.objects.exists()


def test_queries_keep_the_order_of_the_request(post):
    body = request(BOB, ALICE, block=2)
    body["data"]["31337"]["block:1"] = {"accounts": {ALICE: {"props": ["NONCE"]}}}
    post(body)
    queries = Query.objects.order_by("position").values_list("address", "block__number")
    assert list(queries) == [(BOB, 2), (ALICE, 2), (ALICE, 1)]


def test_batches_share_the_row_of_a_block(post):
    post(request(ALICE, block=7))
    post(request(BOB, block=7))
    assert Block.objects.count() == 1


@pytest.mark.parametrize(
    ("address", "stored"), [(ALICE, ALICE), (ALICE.lower(), ALICE), ("0x" + ALICE[2:].upper(), ALICE)]
)
def test_addresses_are_accepted_in_any_case(post, address, stored):
    assert post(request(address, block=1)).status_code == 200
    assert Query.objects.get().address == stored


def test_properties_and_slots_are_accepted_in_any_form_and_stored_once_each(post):
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["accounts"] = {
        ALICE: {"props": ["BALANCE", "NONCE", "CODE_HASH", "STORAGE_ROOT", "BALANCE"]},
        BOB: {"slots": ["0x1", "01", "0xAB", f"{2:064x}"]},
    }
    assert post(body).status_code == 200
    account, slots = Query.objects.order_by("position")
    assert (account.fields, account.slots) == (0b1111, [])
    assert (slots.fields, slots.slots) == (0, [f"0x{slot:064x}" for slot in (1, 0xAB, 2)])


def test_slots_by_name_are_those_that_vote_markets_and_compilers_know(post):
    names = [name for name, _ in NAMED_SLOTS]
    body = request(ALICE, block=1)
    # A slot that is named and written out is one fact.
    body["data"]["31337"]["block:1"]["accounts"] = {ALICE: {"slots": [NAMED_SLOTS[3][1], *names, *names]}}
    assert post(body).status_code == 200
    slots = [slot for _, slot in NAMED_SLOTS]
    query = Query.objects.get()
    assert query.slots == [slots[3], *slots[:3], *slots[4:]]
    assert query.slot_names == {slot: name | {"slot": f"0x{name['slot']}"} for name, slot in NAMED_SLOTS}
    assert Batch.objects.get().size == 1 + len(slots)


def test_what_a_sender_states_about_a_slot_changes_no_slot(post):
    names = [name | STATED for name, _ in NAMED_SLOTS] + [{"slot": "5", "keys": [], "call": "owner()"}]
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["accounts"] = {ALICE: {"slots": names}}
    assert post(body).status_code == 200
    query, slots = Query.objects.get(), [*(slot for _, slot in NAMED_SLOTS), f"0x{5:064x}"]
    assert query.slots == slots
    assert [{key: query.slot_names[slot].get(key) for key in STATED} for slot in slots[:-1]] == [STATED] * (
        len(slots) - 1
    )
    assert query.slot_names[slots[-1]] == {"slot": "0x5", "keys": [], "layout": "solidity", "call": "owner()"}


KEYS = f"/data/31337/block:1/accounts/{ALICE}/slots/1"


@pytest.mark.parametrize(
    ("where", "name", "sentence"),
    [*WRONG_NAMES, *((where, {"slot": "1", "keys": ["1"]} | stated, why) for where, stated, why in WRONG_STATEMENTS)],
)
def test_faults_of_named_slots_are_told_by_their_paths(post, where, name, sentence):
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["accounts"][ALICE]["slots"] = ["0x1", name]
    fault_by_path = faults(post(body))
    assert [*fault_by_path][:1] == [KEYS + where]
    assert fault_by_path[KEYS + where][1].startswith(sentence)


def test_a_header_is_a_query_of_its_own_beside_the_accounts_or_alone(post):
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["header"] = ["TIMESTAMP", "STATE_ROOT", "TIMESTAMP"]
    body["data"]["31337"]["block:2"] = {"header": ["PARENT_HASH"]}
    assert post(body).status_code == 200
    queries = Query.objects.order_by("position")
    requested = [
        [name for bit, name in enumerate(HEADER_FIELDS) if not query.address and query.fields & 1 << bit]
        for query in queries
    ]
    assert requested == [[], ["STATE_ROOT", "TIMESTAMP"], ["PARENT_HASH"]]


@pytest.mark.parametrize(
    ("selector", "tag", "time"),
    [("timestamp:1700000000", "", 1700000000), ("latest", "latest", None), ("finalized", "finalized", None)],
)
def test_a_time_or_a_tag_selects_a_block_that_is_found_later(post, selector, tag, time):
    body = request(ALICE, block=1, fee=2**256 - 1)
    body["data"]["31337"] = {selector: body["data"]["31337"]["block:1"]}
    assert post(body).status_code == 200
    query, batch = Query.objects.get(), Batch.objects.get()
    assert (query.block_tag, query.selector, query.timestamp, query.block) == (tag, selector, time, None)
    assert (query.source_chain_id, batch.block_count, Block.objects.exists()) == (31337, 1, False)
    assert batch.fee == 2**256 - 1


def test_a_submission_of_one_account_takes_so_many_statements_and_one_transaction(
    post, django_assert_max_num_queries, transactional_db
):
    post(request(ALICE, block=1))  # stores the throttle's rows
    most = STATEMENTS_OF_A_SUBMISSION + LOCKS * connection.features.has_select_for_update
    with django_assert_max_num_queries(most) as statements:
        assert post(request(ALICE, block=1)).status_code == 200
    assert [sql["sql"] for sql in statements if sql["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT"))] == [
        "BEGIN IMMEDIATE" if connection.vendor == "sqlite" else "BEGIN",
        "COMMIT",
    ]
    before_it_begins = [sql["sql"] for sql in statements][:3]
    assert all(sql.startswith("SELECT") for sql in before_it_begins)
    with django_assert_max_num_queries(most - 1):  # a new block isn't read
        assert post(request(ALICE, block=2)).status_code == 200


# --- Permissions ------------------------------------------------------------------------------------------------------


def test_the_api_key_is_accepted_as_a_query_parameter_too(client: Client, key):
    response = client.post(
        f"/submit-batch-query?apiKey={secret_of(key)}", request(ALICE, block=1), content_type="application/json"
    )
    assert response.status_code == 200


def test_missing_unknown_and_revoked_keys_get_one_and_the_same_answer(client: Client, post, key):
    revoked = header(key)
    ApiKey.objects.update(revoked_at=timezone.now())
    answers = [
        client.post("/submit-batch-query", b"{", content_type="application/json", headers=headers)
        for headers in ({}, {"api-key": "bqs_unknown"}, revoked)
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json() == {
        "error": "A valid API key is needed, in the header api-key or the query parameter apiKey.",
        "code": "unauthorized",
    }


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_every_fault_is_reported_at_once_and_nothing_is_stored(post):
    response = post(
        {
            "destinationChainId": 31337,
            "fee": "-1",
            "surprise": True,
            "data": {
                "5": {"block:1": {"accounts": {ALICE: {"props": ["BALANCE"]}}}},
                "31337": {
                    "newest": {"accounts": {ALICE: {"props": ["BALANCE"]}}},
                    "block:2": {"accounts": {"0x123": {"props": ["BALANCE"]}, BOB: {"props": ["WEIGHT"]}}},
                    "block:3": {"accounts": {ALICE: {}}},
                    "block:4": {},
                },
            },
        }
    )
    fault_by_path = faults(response)
    assert set(fault_by_path) == {
        "/destinationChainId",
        "/fee",
        "/surprise",
        "/data/5",
        "/data/31337/newest",
        "/data/31337/block:2/accounts/0x123",
        f"/data/31337/block:2/accounts/{BOB}/props/0",
        f"/data/31337/block:3/accounts/{ALICE}",
        "/data/31337/block:4",
    }
    body = response.json()
    assert body["code"] == "invalid_request"
    assert body["error"].startswith("Invalid account address or ENS")
    assert not Batch.objects.exists()
    assert not Block.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b'{"fee": NaN}',
        b'{"fee": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b'{"fee": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"{} {}",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_no_json_is_refused(post, body):
    response = post(body)
    assert response.status_code == 400
    assert response.json()["code"] == "invalid_request"
    assert response.json()["details"][0]["code"] == "invalid_json"


def test_duplicate_keys_are_reported_beside_other_faults(post):
    raw = json.dumps(request("0x1", block=1)).replace('"fee": "0"', '"fee": "0", "fee": "x"').encode()
    fault_by_path = faults(post(raw))
    assert set(fault_by_path) == {"", "/fee", "/data/31337/block:1/accounts/0x1"}
    assert "'fee' appears twice" in fault_by_path[""][1]


WRONG_SELECTORS = [
    *("LATEST", "latest:", "finalized:5", "safe", "pending", "block:latest", "block:", "block:-1", "block:01", ""),
    *("block:1.0", "block:0x1", "Block:1", " block:1", "block:9" + "9" * 30),
    *("timestamp:", "timestamp:-1", "timestamp:1.5", "timestamp:" + "9" * 30),
]


@pytest.mark.parametrize("selector", WRONG_SELECTORS)
def test_malformed_selectors_are_refused(post, selector):
    body = request(ALICE, block=1)
    body["data"]["31337"] = {selector: body["data"]["31337"]["block:1"]}
    assert len(faults(post(body))) == 1


ACCOUNTS = "/data/31337/block:1/accounts"
BALANCE = {"props": ["BALANCE"]}
WRONG: dict[tuple[str, str], list[object]] = {
    (f"{ACCOUNTS}/{ALICE}/slots/0", "invalid_request"): ["", "0x", "0xg", "0x" + "1" * 65, 5, None, "-1", "0x 1"],
    ("/fee", "invalid_request"): [
        *("", "1.5", "-1", "0x1", "1e3", "01", " 1", "+1", "٣", str(2**256), "9" * 100_000, 0, None, [])
    ],
    ("/destinationChainId", "invalid_request"): ["1", "031337", "x", "", 31337, None, "9" * 400],
    (f"{ACCOUNTS}/vitalik.eth", "unsupported"): [BALANCE],
    ("/data/1", "unsupported"): [{"block:1": {"accounts": {ALICE: BALANCE}}}],
}


@pytest.mark.parametrize(
    ("path", "code", "wrong"), [(path, code, value) for (path, code), values in WRONG.items() for value in values]
)
def test_wrong_and_unsupported_values_are_refused_by_their_path(post, path, code, wrong):
    body = request(ALICE, block=1)
    part_of_body: Any = body
    part_of_body["data"]["31337"]["block:1"]["accounts"][ALICE]["slots"] = ["0x1"]
    *parts, last = path.split("/")[1:]
    for part in parts:
        part_of_body = part_of_body[part]
    part_of_body[0 if last == "0" else last] = wrong
    answer = post(body)
    assert set(faults(answer)) == {path}
    assert answer.json()["code"] == code


def test_one_account_in_two_spellings_is_refused(post):
    fault_by_path = faults(post(request(ALICE, ALICE.lower(), block=1)))
    assert "named twice" in fault_by_path["/data/31337/block:1/accounts"][1]


def test_one_transaction_in_two_spellings_is_refused(post):
    status = {"props": ["STATUS"]}
    names = ["0x" + "ab" * 32, "0x" + "AB" * 32]
    twice = {"block:1": {"transactions": dict.fromkeys(names, status)}}
    fault_by_path = faults(post({**request(ALICE, block=1), "data": {"31337": twice}}))
    assert "named twice" in fault_by_path["/data/31337/block:1/transactions"][1]
    blocks = {f"transaction:{name}": {"transactions": {"0": status}} for name in names}
    fault_by_path = faults(post({**request(ALICE, block=1), "data": {"31337": blocks}}))
    assert fault_by_path["/data/31337"][1] == "A block is named twice, in different capitals."


@pytest.mark.parametrize("selects", [False, True])
def test_transactions_may_be_named_at_25_blocks(post, selects):
    def naming(blocks: int) -> dict[str, object]:
        header, transactions = {"header": ["TIMESTAMP"]}, {"transactions": {"0": {"props": ["STATUS"]}}}
        selectors = [f"transaction:0x{number:064x}" if selects else f"block:{number}" for number in range(blocks)]
        data = dict.fromkeys(selectors, header if selects else transactions)
        return {**request(ALICE, block=1), "data": {"31337": data | {"block:99": header}}}

    assert post(naming(25)).status_code == 200
    sentence = "Transactions are named at 26 blocks; a batch may name them at 25."
    assert faults(post(naming(26)))["/data"][1] == sentence


def test_an_account_in_two_spellings_hides_no_other_fault(post):
    body = request("0x1", *(f"0x{letter * 40}" for letter in "aAbB"), block=1)
    accounts = body["data"]["31337"]["block:1"]["accounts"]
    accounts[f"0x{2:040}"], accounts[f"0x{3:040}"] = {"props": ["balance"]}, {"props": []}
    answer = post(body).json()
    assert sorted(fault["path"].removeprefix(ACCOUNTS) for fault in answer["details"]) == sorted(
        ["", "", "/0x1", f"/0x{2:040}/props/0", f"/0x{3:040}"]
    )
    assert answer["error"].startswith("Invalid account address or ENS: '0x1' ")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("0x123", "has 3 hexadecimal digits after 0x, and an address has 40."),
        (ALICE + "0", "has 41 hexadecimal digits"),
        (ALICE.replace("f39F", "F39f"), "has a wrong EIP-55 checksum"),
        *((other, "is no address,") for other in (ALICE[2:], "0x" + "g" * 40, "", "0x" + "\uff11" * 40)),
    ],
)
def test_wrong_addresses_are_refused_in_the_words_that_clients_match(post, address, sentence):
    response = post(request(address, block=1))
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"Invalid account address or ENS: {address!r} {sentence}")


def test_a_request_that_names_nothing_is_refused(post):
    assert set(faults(post({}))) == {"/destinationChainId", "/fee", "/data"}
    assert set(faults(post({**request(ALICE, block=1), "data": {}}))) == {"/data"}
    assert set(faults(post({**request(ALICE, block=1), "data": {"31337": {}}}))) == {"/data/31337"}
    for raw in (b"[]", b'"text"', b"5", b"null", b"true"):
        assert faults(post(raw))[""][1] == "The body must be an object."


def test_more_accounts_and_slots_than_the_limit_are_refused(post, settings):
    settings.MAX_QUERIES_PER_BATCH = 2
    two, three = (request(*(f"0x{number:040x}" for number in range(count)), block=1) for count in (2, 3))
    assert post(two).status_code == 200
    assert "3 accounts, slots, headers, transactions and logs are too many" in faults(post(three))["/data"][1]
    body = request(ALICE, block=1)
    body["data"]["31337"]["block:1"]["accounts"][ALICE] = {"slots": ["0x1", "0x2", "0x3"]}
    assert "4 accounts, slots, headers, transactions and logs are too many" in faults(post(body))["/data"][1]


def test_the_list_of_faults_is_bounded_and_their_number_told(post):
    response = post(request(*(f"0x{number}" for number in range(MAX_FAULTS_LISTED + 500)), block=1))
    assert len(response.json()["details"]) == MAX_FAULTS_LISTED
    assert f"(more than {MAX_FAULTS_LISTED - 1} more in details)" in response.json()["error"]
    response = post(request(*(f"0x{number}" for number in range(MAX_FAULTS_LISTED)), block=1))
    assert len(response.json()["details"]) == MAX_FAULTS_LISTED
    assert f"({MAX_FAULTS_LISTED - 1} more in details)" in response.json()["error"]


def test_a_body_of_countless_faults_is_refused_without_naming_each(post, settings):
    settings.MAX_QUERIES_PER_BATCH = 100
    fault_by_path = faults(post(request(*(f"0x{number}" for number in range(3000)), block=1)))
    assert list(fault_by_path) == [""]
    assert "too many" in fault_by_path[""][1]
    body = request(ALICE, block=1, props=["BALANCE"] * 10_000)
    assert len(faults(post(body))) == 1


@pytest.mark.parametrize(
    ("headers", "status"), [({"content-encoding": "gzip"}, 415), ({"transfer-encoding": "chunked"}, 411)]
)
def test_bodies_that_can_not_be_measured_are_refused_in_words(client: Client, key, headers, status):
    response = client.generic(
        "POST", "/submit-batch-query", b"", content_type="application/json", headers={**header(key), **headers}
    )
    assert response.status_code == status
    assert response.json()["error"].startswith("The body")


def test_errors_of_the_framework_are_json_that_browsers_can_read(client: Client):
    wrong_method = client.get("/submit-batch-query", headers={"origin": "https://dapp.example"})
    for response in (wrong_method, client.get("/chain-connections", headers={"host": "evil.example"})):
        assert response.headers["Content-Type"] == "application/json"
        assert set(response.json()) == {"error", "code"}
    assert (wrong_method.status_code, wrong_method.json()["code"]) == (405, "method_not_allowed")
    assert (wrong_method.headers["Allow"], wrong_method.headers["Access-Control-Allow-Origin"]) == ("POST", "*")


def test_echoed_input_is_bounded(post):
    response = post({**request(ALICE, block=1), "fee": "x" * 100_000, "y" * 100_000: 1})
    assert response.status_code == 400
    assert len(response.content) < 2000


def test_a_body_over_the_limit_is_refused(client: Client, key, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    response = client.post("/submit-batch-query", " " * 1001, content_type="application/json", headers=header(key))
    assert response.status_code == 413
    assert response.json()["code"] == "too_large"


@pytest.mark.parametrize("path", ["/submit-batch-query", "/estimate-batch-query"])
def test_a_form_is_refused(client: Client, key, path):
    response = client.generic("POST", path, b"--b", "multipart/form-data; boundary=b", headers=header(key))
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
