"""How many SQL statements a batch takes, from its submission to a page that shows that it is DONE."""

import pytest
from django.db import connection
from django.test import Client

from tests.proving.working import prove_and_show, work_on_all
from tests.service import ALICE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Where rows are locked, that takes statements of its own.
_MOST = {"sqlite": 147, "postgresql": 154}
_MOST_IN_A_GROUP = {"sqlite": 38, "postgresql": 38}
_GROUP = 64


@pytest.fixture
def key(service, settings):
    """A key of somebody one of whose batches is DONE: what is done once, for all batches, is done."""
    settings.MAX_BATCHES_PER_MINUTE = 1000
    key = a_key()
    submit(key, request(ALICE, block=1))
    work_on_all()
    service.mine(_GROUP)
    return key


def test_one_batch_alone(service, client: Client, key):
    statements = prove_and_show(client, key, request(ALICE, block=service.head()))
    assert statements <= _MOST[connection.vendor]


def test_each_of_a_group(service, client: Client, key):
    """Each is about a block of its own."""
    asked = [request(ALICE, block=service.head() - place) for place in range(_GROUP)]
    statements = prove_and_show(client, key, *asked)
    assert statements <= _GROUP * _MOST_IN_A_GROUP[connection.vendor]
