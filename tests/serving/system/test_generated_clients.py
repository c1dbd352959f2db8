"""Generators make typed, working clients from the API's description."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from devnet.devchain import PROJECT
from tests.serving.batches import BODY, a_key
from tests.serving.process import WebServer

GENERATORS = PROJECT / ".venv-generators" / "bin"
NODE_MODULES = PROJECT / "node_modules"

# A program that uses the client made by openapi-python-client.
USE_IN_PYTHON = """
import importlib, json, pkgutil, sys
import generated
for module in pkgutil.walk_packages(generated.__path__, "generated."):
    importlib.import_module(module.name)
from generated import AuthenticatedClient
from generated.api.batch_queries import (
    cancel_batch_query, get_batch_query, get_batch_query_status, list_batch_queries, submit_batch_query)
from generated.api.chains import list_chain_connections
from generated.api.explorer import get_batch_page, get_submitted_request
from generated.api.facts import list_facts
from generated.models import BatchRequest, Error

url, key, body = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
client = AuthenticatedClient(base_url=url, token=key, auth_header_name="api-key", prefix="")
body = BatchRequest.from_dict(body)
batch = submit_batch_query.sync(client=client, body=body, idempotency_key="once")
assert submit_batch_query.sync(client=client, body=body, idempotency_key="once") == batch
batch = batch.internal_id
(listed,) = list_batch_queries.sync(client=client, limit=10).batch_queries
assert (listed.internal_id, listed.status) == (batch, "RECEIVED")
(query,) = get_batch_query.sync(batch, client=client).query_list
assert (query.selector, query.facts[0].property_, query.facts[0].word) == ("block:1", "BALANCE", None)
assert get_batch_query_status.sync(client=client, batch_query_id=batch).query_status == "IN_PROGRESS"
assert get_batch_page.sync(batch, client=client).internal_id == batch
assert get_submitted_request.sync(batch, client=client).fee == "0"
assert list_facts.sync(client=client, block="1").facts == []
assert list_chain_connections.sync(client=client).connections[0].origin_chain_id == "31337"
assert cancel_batch_query.sync(batch, client=client).query_status == "REJECTED"
status = get_batch_query_status.sync(client=client, batch_query_id=batch)
assert (status.code, status.retryable) == ("cancelled_by_user", False)
error = get_batch_query.sync("0" * 26, client=client)
assert isinstance(error, Error) and error.code == "not_found"
"""

USE_IN_TYPESCRIPT = (Path(__file__).parents[1] / "use_client.ts").read_text("utf-8")


@pytest.fixture(scope="module")
def document(web: WebServer, tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("api") / "openapi.json"
    command = "import json; from config.urls import api; print(json.dumps(api.get_openapi_schema(), default=str))"
    path.write_text(web.installation.manage("shell", "--no-imports", "-c", command).splitlines()[-1])
    return path


def run(*command: object, folder: Path) -> str:
    environment = os.environ | {"PATH": f"{GENERATORS}:{PROJECT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python_client(document: Path) -> Path:
    """Return the folder of a generated client."""
    made = ("openapi-python-client", "generate", "--path", document, "--output-path", "generated", "--meta", "none")
    assert "Warning" not in run(*made, folder=document.parent)
    return document.parent


@pytest.mark.long
def test_a_python_client_is_made_that_works(web, python_client):
    run(GENERATORS / "python", "-c", USE_IN_PYTHON, web.url, a_key(web), json.dumps(BODY), folder=python_client)


@pytest.mark.long
def test_a_python_client_is_strictly_typed(python_client):
    # The generator's `__exit__` isn't strictly typed, whatever the description is.
    (python_client / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-generated.client]\nignore_errors = true\n")
    run(PROJECT / ".venv/bin/mypy", "--python-executable", GENERATORS / "python", "generated", folder=python_client)


@pytest.mark.long
def test_types_for_typescript_are_made_that_check(document, tmp_path):
    run(NODE_MODULES / ".bin/openapi-typescript", document, "-o", "api.d.ts", folder=tmp_path)
    (tmp_path / "use.ts").write_text(USE_IN_TYPESCRIPT)
    run(NODE_MODULES / ".bin/tsc", "--noEmit", "--strict", "--target", "es2022", "use.ts", "api.d.ts", folder=tmp_path)
