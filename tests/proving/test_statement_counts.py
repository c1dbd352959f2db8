"""How many SQL statements a batch takes, from its submission to a page that shows that it is DONE."""

import pytest
from django.db import connection
from django.test import Client

from tests.proving.working import prove_and_show, work_on_all
from tests.service import ALICE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Where rows are locked, that takes statements of its own.
_MOST = {"sqlite": 270, "postgresql": 296}


def test_one_batch_alone(service, client: Client):
    key = a_key()
    submit(key, request(ALICE, block=1))
    work_on_all()  # what is done once, for all batches
    service.mine()
    statements = prove_and_show(client, key, request(ALICE, block=service.head()))
    assert statements <= _MOST[connection.vendor]
