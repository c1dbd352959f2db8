"""A key that may only read: listed endpoints answer it, and all others refuse it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiKey, User
from queries.models import Batch, DeliveryStatus, StepKind, Webhook, WebhookDelivery
from tests.accounts import over_http
from tests.explorer.batches import accept, complete
from tests.factories import client_of
from tests.service import ALICE, asking, balances, fresh, header, request, submit
from tests.users import secret_of

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.usefixtures("unreachable_chain")]

# An endpoint that isn't here must refuse a read-only key.
READING = {
    *("get_batch_query_status", "list_batch_queries", "get_batch_query", "get_batch_transactions"),
    *("estimate_batch_query", "read_proofs", "find_slots", "list_facts", "list_webhook_deliveries"),
    *("get_queries", "get_actions"),
}
JSON = {"accept": "application/json"}


def made(access: str, name: str = "it") -> ApiKey:
    answer = over_http.ask(client_of(ALICE), "/dashboard/keys", {"name": name, "access": access})
    assert answer["access"] == access
    return ApiKey.objects.get(pk=answer["id"])


@pytest.fixture
def reading(db) -> ApiKey:
    return made("read")


def operations() -> list[tuple[str, str, str]]:
    """Return the method, path and identifier of each operation that takes a key."""
    document = Client().get("/api/openapi.json").json()
    return [
        (method, path, operation["operationId"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation.get("security")
    ]


@pytest.mark.long
def test_the_listed_operations_alone_answer_it(reading):
    full = made("full", "full")
    batch = accept(submit(full, {**request(ALICE, block=12), "webhook": {"url": "https://hooks.example.org"}}))
    complete(batch, *StepKind)
    self_funded = {**asking(balances([13])), "sender": "self"}
    del self_funded["fee"]
    opened = accept(submit(full, self_funded))
    (delivery,) = WebhookDelivery.objects.all()
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED)
    Webhook.objects.update(due_at=None)
    values = {"{internalId}": opened.pk, "{deliveryId}": delivery.message_id}
    values |= {"{request_id}": batch.pk, "{query_id}": f"{batch.pk}-1"}
    body = asking(balances([14]))

    def ask(key: ApiKey, method: str, path: str) -> Any:
        for name, value in values.items():
            path = path.replace(name, value)
        if method == "get":
            return Client().get(path, {"batchQueryId": batch.pk, "wait": "1"}, headers=header(key))
        return Client().generic(method.upper(), path, json.dumps(body), "application/json", headers=header(key))

    answers = {operation: ask(reading, method, path) for method, path, operation in operations()}
    refused = {operation for operation, answer in answers.items() if answer.status_code == 403}
    assert {answers[operation].json()["code"] for operation in refused} == {"read_only_key"}
    assert set(answers) - refused == READING
    assert {answers[operation].status_code for operation in READING} <= {200, 400, 503}
    # A key in the query string is the same key.
    again = Client().post(f"/submit-batch-query?apiKey={secret_of(reading)}", body, "application/json")
    assert (again.status_code, again.json()["code"]) == (403, "read_only_key")
    # Nothing has changed.
    assert Batch.objects.count() == 2
    assert fresh(opened).is_open
    assert not WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING).exists()
    assert ApiKey.objects.get(pk=reading.pk).last_used_at
    # A key with full access is refused nothing of this.
    assert 403 not in {ask(full, method, path).status_code for method, path, _ in operations()}


def test_read_only_access_is_chosen_at_creation_and_kept_by_rotation(reading):
    new = over_http.rotate(reading, "its successor", timedelta(hours=1))
    assert (new.access, over_http.authenticate(secret_of(new))) == ("read", new)
    listed = client_of(ALICE).get("/keys", headers=JSON).json()["keys"]
    assert {key["name"]: key["access"] for key in listed} == {"it": "read", "its successor": "read"}
    client = client_of(ALICE)
    client.post("/dashboard/keys", {"name": "by form", "access": "read"})
    client.post("/dashboard/keys", {"name": "without a choice"})
    assert client.get("/keys").text.count('data-l="Access">Read only</td>') == 3
    assert client.get("/dashboard/log").text.count("It may only read.") == 2
    access = dict(User.objects.get().api_keys.values_list("name", "access"))
    assert (access["by form"], access["without a choice"]) == ("read", "full")


@pytest.mark.parametrize("name", [True, 5, ["it"], None])
def test_a_name_that_is_no_text_counts_as_left_out(name):
    assert over_http.ask(client_of(ALICE), "/dashboard/keys", {"name": name})["name"] == "key 2"


@pytest.mark.parametrize("access", ["READ", "write", "", True, None, ["read"], {"read": 1}, 1.5])
def test_another_access_is_refused(access):
    with pytest.raises(over_http.Refused) as refused:
        over_http.ask(client_of(ALICE), "/dashboard/keys", {"name": "it", "access": access})
    assert (refused.value.status, refused.value.code) == (400, "malformed_access")
    assert not ApiKey.objects.exists()
