"""Answers of the API and the explorer match the OpenAPI description. Models generated from it accept them and nothing
else.
"""

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from devnet.devchain import PROJECT
from proving.models import Share
from queries.models import Batch, DeliveryStatus, StepKind, WebhookDelivery
from tests.explorer import batches
from tests.explorer.batches import path
from tests.factories import client_of
from tests.service import ALICE, a_key, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

GENERATORS = PROJECT / ".venv-generators" / "bin"
READ = """
import json, sys
import models
for name, answer in json.load(sys.stdin):
    try:
        getattr(models, name).model_validate_json(json.dumps(answer), strict=True)
    except ValueError as error:
        print(json.dumps([name, answer, str(error)]))
"""


def description() -> dict[str, Any]:
    answer: dict[str, Any] = Client().get("/api/openapi.json").json()
    return answer


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Return the folder of generated models, which refuse undescribed fields."""
    folder: Path = tmp_path_factory.mktemp("models")
    urls = importlib.import_module("config.urls")
    (folder / "openapi.json").write_text(json.dumps(urls.api.get_openapi_schema(), default=str))
    made = (
        *(GENERATORS / "datamodel-codegen", "--input", "openapi.json", "--input-file-type", "openapi"),
        *("--output", "models.py", "--output-model-type", "pydantic_v2.BaseModel", "--extra-fields", "forbid"),
        *("--formatters", "builtin", "--target-python-version", "3.11"),
    )
    subprocess.run(made, cwd=folder, check=True)
    return folder


def refused(models: Path, answers: list[tuple[str, Any]]) -> list[Any]:
    """Return the name, content and error of each answer that isn't as described."""
    command: list[str | Path] = [GENERATORS / "python", "-c", READ]
    done = subprocess.run(command, input=json.dumps(answers), cwd=models, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(json.loads, done.stdout.splitlines()))


def answers_about(batch: Batch) -> list[tuple[str, Any]]:
    client, key = Client(), header(batch.api_key)

    def get(where: str) -> Any:
        return client.get(where, headers=key).json()

    return [
        ("Status", get(f"/batch-query-status?batchQueryId={batch.pk}")),
        ("BatchQueryList", get("/batch-queries")),
        ("BatchDetail", get(f"/batch-queries/{batch.pk}")),
        ("HeldFacts", get("/facts?block=12")),
        ("BatchRequest", get(f"{path(batch)}/request.json")),
        ("Health", get("/healthz")),
    ]


@pytest.mark.long
def test_every_answer_is_as_described_whatever_the_state(models):
    accounts = {ALICE: {"props": ["NONCE", "BALANCE"], "slots": ["0x5"]}}
    batch = batches.batch_at(
        block_12={"accounts": accounts, "header": ["TIMESTAMP"]}, timestamp_1700000005={"accounts": accounts}
    )
    client, key = Client(), header(batch.api_key)
    answers = [
        *answers_about(batch),
        ("Error", client.get("/batch-queries/x", headers=key).json()),
        ("Error", client.post("/submit-batch-query", {}, content_type="application/json", headers=key).json()),
        ("Error", client.get(f"{path(batch)}/1/bundle.json").json()),
        ("Error", client.get(f"{path(batch)}/bundle.json").json()),
        ("ConnectionList", client.get("/chain-connections").json()),
        ("ChainsDetail", client.get("/chains.json").json()),
    ]
    batches.find_block(batch, 13)
    batches.accept(batch)
    batches.beat()
    batches.fetch_proofs(batch)
    batches.complete(batch, StepKind.INITIAL_STATE)
    Share.objects.create(transaction=batches.send(batch), batch=batch, gas=1, wei=1, weight=1)
    answers += answers_about(batch)
    batches.complete(batch, *list(StepKind)[1:], transaction_hash=batches.TRANSACTION)
    batches.settle(batch)
    answers += answers_about(batch)
    answers += [("ProofBundle", batches.bundle_of(batch, number)) for number in (None, 1, 2, 3)]
    batches.reopen(batch, StepKind.FACTS_PROVEN, of=[batch.queries.all()[0].pk])
    answers.append(("Cancelled", client.post(f"/batch-queries/{batch.pk}/cancel", headers=key).json()))
    answers += answers_about(batch)
    assert refused(models, answers) == []
    told = [answer["status"] for name, answer in answers if name == "BatchDetail"]
    assert told == ["RECEIVED", "IN_PROGRESS", "DONE", "REJECTED"]


@pytest.mark.long
def test_deliveries_of_webhooks_are_as_described(models):
    key = a_key()
    batches.finish(submit(key, {**request(ALICE, block=12), "webhook": {"url": "https://hooks.example.org"}}))
    client, listed = Client(), "/webhook-deliveries"
    answers = [("DeliveryList", client.get(listed, headers=header(key)).json())]
    attempt = {"at": timezone.now().isoformat(), "httpStatus": None, "outcome": "It is away.", "seconds": 0.5}
    given_up = {"status": DeliveryStatus.FAILED, "ended_at": timezone.now(), "next_try_at": None}
    WebhookDelivery.objects.update(attempts=[attempt], **given_up)
    answers.append(("DeliveryList", client.get(listed, headers=header(key)).json()))
    (delivery,) = answers[-1][1]["deliveries"]
    answers.append(("SentAgain", client.post(f"{listed}/{delivery['id']}/send-again", headers=header(key)).json()))
    client_of(ALICE).post("/webhooks/test", {"url": "https://hooks.example.org"})
    answers.append(("DeliveryList", client.get(listed, headers=header(key)).json()))
    assert answers[-1][1]["deliveries"][0]["event"] == "TEST"
    assert refused(models, answers) == []
    assert [answer["deliveries"][0]["status"] for _, answer in answers[:2]] == ["PENDING", "FAILED"]


# --- The description --------------------------------------------------------------------------------------------------


def operations() -> list[dict[str, Any]]:
    return [operation for path in description()["paths"].values() for operation in path.values()]


def test_a_generated_client_sees_a_malformed_request_before_it_is_sent(models):
    body = json.dumps(request(ALICE, block=12)).replace('"slots": []', '"slots": ["0x5"]')
    malformed = [
        ("BatchRequest", json.loads(body.replace(old, new, 1)))
        for old, new in (
            *(('"31337": {', '"x": {'), ('"31337",', '"007",'), ('"block:12"', '"block:-1"'), ('"0xf39F', '"f39F')),
            *(('"0x5"', '"5g"'), ('"fee": "0"', '"fee": "1.5"')),
        )
    ]
    errors = refused(models, [("BatchRequest", json.loads(body)), *malformed])
    assert [(name, sent) for name, sent, _ in errors] == malformed
    assert all("should match pattern" in error for *_, error in errors)


def test_every_error_answer_is_an_error_and_every_code_is_specified():
    for operation in operations():
        for status, answer in operation["responses"].items():
            if int(status) >= 400 and operation["operationId"] != "get_health":
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}
    lines = description()["info"]["description"].splitlines()
    listed = {line.split("`")[1] for line in lines if line.startswith("- ")}
    assert {"invalid_request", "unauthorized", "not_found", "busy", "proofs_pruned"} <= listed
    specification = "".join(
        (PROJECT / name).read_text() for name in ("docs/specification.md", "docs/using/explorer.md")
    )
    for code in listed:
        assert f"`{code}`" in specification, code
