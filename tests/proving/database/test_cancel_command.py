"""`manage.py cancel`, by which operators cancel batches."""

import getpass
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import ApiKey, User
from proving.models import Stop
from queries.models import Batch, BatchStatus, WebhookDelivery
from tests.explorer.batches import accept, finish, path, reject
from tests.explorer.pages import text_of
from tests.factories import log_of_operators
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = pytest.mark.outside

SENTENCE = "The operator has cancelled the batch. The reason given: A test."


@pytest.fixture(autouse=True)
def an_unreachable_chain(unreachable_chain, db) -> None:
    """Batches stay as the tests leave them."""


def of_bob(block: int = 1) -> Batch:
    """Return a RECEIVED batch of Bob with a webhook."""
    key = ApiKey.objects.filter(user__address=BOB).first() or a_key(BOB)
    body = request(ALICE, block=block)
    return submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": ["REJECTED"]}})


def cancel(*arguments: str, reason: str = "A test.") -> str:
    out = StringIO()
    call_command("cancel", *arguments, reason=reason, stdout=out)
    return out.getvalue()


def refused(*arguments: str, reason: str = "A test.") -> str:
    """Return the sentence of a refusal, which has changed no row and told nobody."""

    def rows() -> list[object]:
        return [*Batch.objects.order_by("pk").values(), *WebhookDelivery.objects.values(), *log_of_operators()]

    before = rows()
    with pytest.raises(CommandError) as refusal:
        cancel(*arguments, reason=reason)
    assert refusal.value.returncode == 1
    assert rows() == before
    return str(refusal.value)


def statuses() -> list[str]:
    return list(Batch.objects.order_by("pk").values_list("status", flat=True))


def test_an_operator_cancels_a_batch_and_its_user_reads_why():
    batch = of_bob()
    of_bob(block=2)
    output = cancel(batch.pk.lower(), reason=" A test. ")
    assert output == f"{batch.pk} was cancelled.\nSent transactions stay paid, and workers follow them.\n"
    assert statuses() == ["REJECTED", "RECEIVED"]
    rejection = {"code": "cancelled_by_operator", "error": SENTENCE, "retryable": False}
    assert Client().get(f"{path(batch)}.json").json()["rejection"] == rejection
    text = text_of(Client().get(path(batch)).text)
    assert "The reason given: A test." in text
    assert "Sent transactions stay paid" in text
    why = f"Cancelled. Why: A test. By: {getpass.getuser()}"
    assert log_of_operators() == [("manage.py", batch.pk, why)]


def test_its_webhook_is_told_the_same_as_of_a_cancellation_by_the_user():
    by_operator, by_user = of_bob(), of_bob(block=2)
    cancel(by_operator.pk)
    assert Client().post(f"/batch-queries/{by_user.pk}/cancel", headers=header(by_user.api_key)).status_code == 200
    of_command, of_api = (json.loads(batch.webhook.deliveries.get().body) for batch in (by_operator, by_user))
    assert of_command["type"] == of_api["type"] == "batch_query.rejected"
    told = {"code": "cancelled_by_operator", "error": SENTENCE, "retryable": False}
    assert of_command["data"] == {**of_api["data"], "internalId": by_operator.pk, **told}


@pytest.mark.parametrize("state", ["RECEIVED", "ACCEPTED"])
def test_several_batches_are_cancelled_and_a_repeated_name_counts_once(state):
    batches = [of_bob(), of_bob(block=2)]
    for batch in batches:
        if state == "ACCEPTED":
            accept(batch)
    output = cancel(*(batch.pk for batch in (*batches, batches[0])))
    assert output.count("was cancelled") == 2
    assert statuses() == ["REJECTED", "REJECTED"]
    assert len(log_of_operators()) == 2


@pytest.mark.parametrize("reason", ["", " \n"])
def test_without_a_reason_nothing_changes(reason):
    batch = of_bob()
    assert refused(batch.pk, reason=reason).startswith("Give a --reason")
    assert refused("--user", BOB, reason=reason).startswith("Give a --reason")


@pytest.mark.parametrize("reason", ["x" * 201, "\u200b", "\u202eA test.", "\x1b[31mA test."])
def test_a_reason_that_users_could_not_read_is_refused(reason):
    sentence = "--reason must be a line of at most 200 visible characters. Nothing was changed."
    assert refused(of_bob().pk, reason=reason) == sentence
    with pytest.raises(CommandError, match=sentence):
        call_command("stop", "31337", reason=reason)
    assert not Stop.objects.exists()


def test_a_reason_becomes_one_line():
    cancel(of_bob().pk, reason=f"{'x' * 99}\n\t{'x' * 100}")
    assert Batch.objects.get().rejection_reason.endswith(f" {'x' * 99} {'x' * 100}")


@pytest.mark.parametrize("unknown", ["0" * 26, "x", "%", "1 OR 1"])
def test_an_unknown_identifier_cancels_none_of_the_others_either(unknown):
    batch = of_bob()
    assert refused(batch.pk, unknown) == f"There is no batch {unknown}. Nothing was cancelled."


@pytest.mark.parametrize(("end", "status"), [(finish, "DONE"), (reject, "REJECTED")])
def test_a_batch_that_is_not_open_keeps_all_from_being_cancelled(end, status):
    first, ended = of_bob(), of_bob(block=2)
    end(ended)
    sentence = f"The batch {ended.pk} is {status}. Nothing was cancelled."
    assert refused(first.pk, ended.pk) == refused(ended.pk) == sentence
    assert refused("x", ended.pk) == f"There is no batch x. {sentence}"


def test_a_second_cancellation_is_refused():
    batch = of_bob()
    cancel(batch.pk)
    assert "is REJECTED" in refused(batch.pk, reason="Another.")
    assert Batch.objects.get().rejection_reason == SENTENCE


def test_all_open_batches_of_a_user_are_cancelled_and_nobody_else_s():
    done = finish(of_bob())
    batches = [of_bob(block=2), accept(of_bob(block=3))]
    of_alice = submit(a_key(ALICE), request(ALICE, block=2))
    wallet = User.objects.for_address(BOB, 5)
    Batch.objects.filter(pk=of_bob(block=4).pk).update(user=wallet)
    output = cancel("--user", BOB.lower()).split("\n")[:-2]
    assert sorted(output) == [f"{batch.pk} was cancelled." for batch in batches]
    assert dict(Batch.objects.filter(user__address=BOB, user__chain_id=None).values_list("pk", "status")) == {
        done.pk: BatchStatus.DONE,
        **{batch.pk: BatchStatus.REJECTED for batch in batches},
    }
    assert statuses().count(BatchStatus.REJECTED) == len(log_of_operators()) == 2
    assert Batch.objects.get(pk=of_alice.pk).status == BatchStatus.RECEIVED
    assert cancel("--user", f"5:{BOB}").count("was cancelled") == 1


def test_a_user_who_is_unknown_or_has_no_open_batch_is_told_so():
    assert refused("--user", "alice") == "Nobody has signed in with alice. Nothing was changed."
    finish(of_bob())
    assert refused("--user", BOB) == f"{BOB} has no open batch."
    hint = f"Did you mean {BOB}?"
    assert hint in refused("--user", f"5:{BOB}")


def test_batches_and_a_user_are_not_named_together_and_one_of_them_is_needed():
    batch = of_bob()
    sentence = "Name batches, or --user. Nothing was cancelled."
    assert refused() == refused(batch.pk, "--user", BOB) == sentence
