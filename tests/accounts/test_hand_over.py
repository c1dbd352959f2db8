"""`manage.py hand_over` gives a contract wallet the rows that a version before 0.3.0 stored for its address."""

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import ApiKey, User
from queries.models import Batch, IdempotencyKey, Webhook
from tests.accounts.over_http import ask, authenticate, finish, start
from tests.accounts.wallets import ALICE, sign
from tests.databases import all_that_is_stored
from tests.factories import client_of
from tests.service import BOB, a_key, header, key_columns, request, secret_of

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

WALLET = f"31337:{BOB}"
HOOK = {"webhook": {"url": "https://93.184.215.14/hook"}}


def of_before(address: str) -> User:
    """Return a user as stored before 0.3.0. The row doesn't say whether the address has a key of its own."""
    return User.objects.create(address=address, own_key_known=False)


def submit(key: ApiKey, named: str) -> Batch:
    sent = header(key) | {"Idempotency-Key": named}
    body = request(ALICE.address, block=1) | HOOK
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=sent)
    assert answer.status_code == 200, answer.text
    return Batch.objects.get(pk=answer.json()["internalId"])


@pytest.fixture
def before() -> User:
    user = of_before(BOB)
    user.max_open_batches = user.max_open_queries = 5
    user.daily_limits_wei = {"*": "0", "31337": "3"}
    user.save()
    for name in ("default", "other"):
        ApiKey.objects.create(user=user, name=name, **key_columns())
    submit(user.api_keys.all()[0], "the same")
    return user


@pytest.fixture
def wallet() -> User:
    user = User.objects.for_address(BOB, 31337)
    user.max_open_batches = 7
    user.daily_limits_wei = {"31337": "5"}
    user.save()
    for name in ("default", "default 2"):
        ApiKey.objects.create(user=user, name=name, **key_columns())
    for named in ("the same", "another"):
        submit(user.api_keys.all()[0], named)
    return user


def secret_shown_to(user: User) -> str:
    return str(ask(client_of(user.address, user.chain_id), "/dashboard/webhooks/reveal", {})["webhookSecret"])


def test_a_contract_wallet_gets_all_that_is_from_before_beside_what_it_has(before, wallet, capsys):
    keys = {secret_of(key) for key in ApiKey.objects.all()}
    batches = {(batch.pk, batch.status) for batch in Batch.objects.all()}
    secret = secret_shown_to(before)
    signed_in = client_of(BOB, 31337)
    for page in ("/keys", "/dashboard"):
        assert f"manage.py hand_over {WALLET}" in signed_in.get(page, headers={"accept": "text/html"}).text
    retried = IdempotencyKey.objects.get(user=wallet, key="the same").batch
    call_command("hand_over", WALLET.lower(), reason="Bob asked.")
    user = User.objects.get(address=BOB)
    assert (user.chain_id, user.max_open_batches, user.max_open_queries) == (31337, 7, 5)
    assert user.daily_limits_wei == {"*": "0", "31337": "5"}
    # A retry of the wallet's submission gets the wallet's batch, although the user of before had used the same key.
    assert IdempotencyKey.objects.get(user=user, key="the same").batch == retried
    assert signed_in.get("/keys").status_code == 302
    html = client_of(BOB, 31337).get("/keys", headers={"accept": "text/html"}).text
    assert "hand_over" not in html
    assert "The secret was rotated. The one before signs beside it until" in html
    assert secret_shown_to(user) == secret
    assert {key.name for key in user.api_keys.all()} == {"default", "other", "default 2", "default 3"}
    assert {secret_of(key) for key in user.api_keys.all() if authenticate(secret_of(key))} == keys
    assert {(batch.pk, batch.status) for batch in Batch.objects.filter(user=user)} == batches
    assert Webhook.objects.filter(user=user).count() == 3
    assert sorted(IdempotencyKey.objects.filter(user=user).values_list("key", flat=True)) == ["another", "the same"]
    entry = LogEntry.objects.get()
    assert (entry.object_repr, "Bob asked." in entry.change_message) == (WALLET, True)
    stored = all_that_is_stored()
    call_command("hand_over", WALLET)
    assert all_that_is_stored() == stored
    assert capsys.readouterr().out.splitlines() == [
        f"The keys and batches of before are those of {WALLET}.",
        f"No user of before has the address of {WALLET}: nothing is left to hand over.",
    ]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (BOB, "Name the contract wallet as chainId:address"),
        ("31337:0x12", "Name the contract wallet as chainId:address"),
        (f"5:{BOB}", f"5:{BOB} hasn't signed in"),
        (f"31337:{ALICE.address}", "signs in with a key of its own"),
    ],
)
def test_it_hands_nothing_over_to_who_is_not_the_user_of_before(before, wallet, named, why):
    User.objects.for_address(ALICE.address, 31337)
    a_key(ALICE.address)
    stored = all_that_is_stored()
    with pytest.raises(CommandError, match=why):
        call_command("hand_over", named)
    assert all_that_is_stored() == stored


def test_who_signs_with_a_key_of_its_own_stays_the_user_of_before():
    user = of_before(ALICE.address)
    key = ApiKey.objects.create(user=user, name="default", **key_columns())
    message = start(ALICE.address, 31337)
    assert finish(message, sign(message, ALICE)) == user
    assert authenticate(secret_of(key)) == key
    # The sign-in showed that the address has a key of its own, so its contract wallet sees no hint about hand_over.
    other = client_of(ALICE.address, 31337)
    assert "hand_over" not in other.get("/keys", headers={"accept": "text/html"}).text
    with pytest.raises(CommandError, match="signs in with a key of its own"):
        call_command("hand_over", f"31337:{ALICE.address}")


def test_a_secret_of_webhooks_stays_the_wallet_s_where_there_was_none_before(wallet):
    of_before(BOB)
    secret = secret_shown_to(wallet)
    call_command("hand_over", WALLET)
    assert secret_shown_to(User.objects.get(address=BOB)) == secret
