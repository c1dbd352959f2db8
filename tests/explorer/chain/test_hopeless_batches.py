"""The form submits nothing that the service would reject for good."""

import pytest
from django.test import Client

from queries.models import Batch
from tests.explorer.batch_forms import post
from tests.service import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture
def submitted(service, key, alice) -> Client:
    """Return the browser of a user who has a key."""
    signed_in: Client = alice
    return signed_in


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"transactions": "0", "logs": "9", "props": [], "tx_props": []}, "has no log 9"),
        ({"transactions": "99", "props": [], "tx_props": ["STATUS"]}, "so none has index 99"),
        ({"accounts": ALICE, "block": "0"}, "proves the state at block 0."),
    ],
)
def test_a_batch_that_would_surely_be_rejected_is_not_stored(service, submitted, row, sentence):
    where = {"at": "block", "block": str(service.head())}
    if "transactions" in row:
        # A reorganisation may still change the block.
        html = post(submitted, "estimate", where | row)
        assert sentence in html
        assert "Nothing was submitted." not in html
        service.mine(100)
    html = post(submitted, "submit", where | row)
    assert "Nothing was submitted." in html
    assert sentence in html
    assert 'value="submit-' not in html
    assert not Batch.objects.exists()
    # The other button, and the same post again, submit nothing either.
    post(submitted, "submit", where | row)
    assert not Batch.objects.exists()
    post(submitted, "submit", where | {"accounts": ALICE}, status=303)
    assert Batch.objects.count() == 1
