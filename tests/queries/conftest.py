import json

import pytest
from django.test import Client

from config.configured_chains import get_chains
from tests.service import chains_toml, header


@pytest.fixture(autouse=True)
def configured(settings, tmp_path, db) -> None:
    """Chain 31337 connected to itself. The API asks no node, so none runs."""
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1")
    get_chains.cache_clear()


@pytest.fixture
def post(client: Client, key):
    """Posts a body, as JSON if it isn't bytes, with alice's key."""

    def post(body, **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**header(key), **headers}
        return client.post("/submit-batch-query", raw, content_type="application/json", headers=sent)

    return post
