import json

import pytest
from django.test import Client

from tests.service import header


@pytest.fixture(autouse=True)
def configured(unreachable_chain, db) -> None:
    """The API asks no node, so none runs."""


@pytest.fixture
def post(client: Client, key):
    """Posts a body, as JSON if it isn't bytes, with alice's key."""

    def post(body, path="/submit-batch-query", **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**header(key), **headers}
        return client.post(path, raw, content_type="application/json", headers=sent)

    return post
