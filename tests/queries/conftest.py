import json

import pytest
from django.test import Client

from tests.service import header


@pytest.fixture(autouse=True)
def configured(unreachable_chain, db) -> None:
    """Configure a chain without a node. The API asks none."""


@pytest.fixture
def post(client: Client, key):
    """Return a function that posts a body with Alice's key. Bodies other than bytes are sent as JSON."""

    def post(body, path="/submit-batch-query", **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**header(key), **headers}
        return client.post(path, raw, content_type="application/json", headers=sent)

    return post
