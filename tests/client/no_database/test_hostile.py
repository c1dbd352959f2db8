"""Services and nodes that break the rules of HTTP. The client ends in time with an error message."""

import asyncio
import time
from pathlib import Path

import pytest

from batch_query_client import (
    AsyncBatchQueryService,
    BatchQueryError,
    BatchQueryService,
    Patience,
    Unavailable,
    verify_bundle_by_nodes,
)
from tests.chains.hostile_node import DRIPS, FLOODS, LIES, hostile_node
from tests.chains.lying_node import lying_node, result
from tests.tls_failures import FAILURES, failing

pytestmark = pytest.mark.outside

WORST = {**FLOODS, **DRIPS, **LIES}
IMPATIENT = Patience(seconds=0, answer_seconds=0.5)
# Seconds in addition to a flood's own duration, for a busy machine.
SECONDS = 60
BUNDLE = (Path(__file__).parents[1] / "bundle.json").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("behave", WORST.values(), ids=WORST)
def test_whatever_a_service_or_a_node_does_the_client_ends_with_a_sentence(behave):
    began = time.monotonic()
    with hostile_node(behave, chain_id=None) as url:
        with pytest.raises(Unavailable, match=r"^(The node )?127\.0\.0\.1:\d+ .*\.$"):
            BatchQueryService(url, api_key="bqs_key", patience=IMPATIENT).submit_body({"data": {}})
        with pytest.raises(Unavailable, match=r"^(The node )?127\.0\.0\.1:\d+ .*\.$"):
            verify_bundle_by_nodes(BUNDLE, [url], IMPATIENT)
    assert time.monotonic() - began < SECONDS


def test_an_answer_without_end_is_left_for_its_length_and_not_for_its_time():
    patient = Patience(seconds=0, answer_seconds=4 * SECONDS)
    with (
        hostile_node(WORST["endless reply"], chain_id=None) as url,
        pytest.raises(Unavailable, match=r"^127\.0\.0\.1:\d+ sent more than \d+ bytes\.$"),
    ):
        BatchQueryService(url, patience=patient).submit_body({"data": {}})


@pytest.mark.parametrize("name", ["dripped headers", "gzip bomb", "hangs up midway"])
def test_so_it_does_for_callers_that_do_not_block(name):
    async def submit(url: str) -> None:
        async with AsyncBatchQueryService(url, patience=IMPATIENT) as service:
            await service.submit_body({"data": {}})

    with hostile_node(WORST[name], chain_id=None) as url, pytest.raises(Unavailable, match=r"^127\.0\.0\.1:\d+ "):
        asyncio.run(submit(url))


def test_a_node_that_refuses_python_is_read():
    with (
        lying_node(lambda body: result(body, "0x1"), "ython") as url,
        pytest.raises(BatchQueryError, match="Name a node of this"),
    ):
        verify_bundle_by_nodes(BUNDLE, [url], IMPATIENT)


def test_no_url_comes_into_a_log(caplog):
    caplog.set_level("INFO")
    with hostile_node(WORST["wrong ids"], chain_id=None) as url, pytest.raises(Unavailable):
        verify_bundle_by_nodes(BUNDLE, [f"{url}/a-key-of-a-provider"], IMPATIENT)
    assert "a-key-of-a-provider" not in caplog.text


def test_a_service_that_is_not_there_is_said_without_its_path():
    with pytest.raises(Unavailable, match=r"^127\.0\.0\.1:1 can't be reached\.$"):
        BatchQueryService("http://127.0.0.1:1/secret", patience=IMPATIENT).connections()
    with pytest.raises(Unavailable, match=r"^no-such-host\.invalid can't be reached\.$"):
        BatchQueryService("https://no-such-host.invalid", patience=IMPATIENT).connections()


@pytest.mark.parametrize(("behave", "told"), FAILURES.values(), ids=FAILURES)
def test_a_service_without_valid_tls_is_said_with_the_cause(monkeypatch, behave, told):
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with failing(behave) as url, pytest.raises(Unavailable) as caught:
        BatchQueryService(url, patience=IMPATIENT).connections()
    assert str(caught.value) == f"{url.removeprefix('https://')} {told}."


@pytest.mark.parametrize(
    "url", ["", "ftp://a.example", "https://", "a.example", "https://a.example/?key=1", "https://a:b@c.example"]
)
def test_an_invalid_service_address_is_refused_at_once(url):
    with pytest.raises(ValueError, match="address"):
        BatchQueryService(url)


@pytest.mark.parametrize("key", ["a b", "a\r\nb: c", "ä"])
def test_a_malformed_api_key_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match="key") as caught:
        BatchQueryService("https://a.example", api_key=key)
    assert key not in str(caught.value)
