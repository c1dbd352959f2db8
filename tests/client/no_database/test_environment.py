"""Proxies and certificates of the environment: the client works with them, or names the variable."""

import asyncio
import logging
import os
import sys
from typing import Any

import certifi
import pytest

from batch_query_client import AsyncBatchQueryService, BatchQueryError, BatchQueryService, Patience, Unavailable
from batch_query_client.command_line.running import run
from tests.proxies import EXCEPTED, NOT_EXCEPTED, answering
from tests.tls_failures import CERTIFICATE, FAILURES, failing

pytestmark = pytest.mark.outside

IMPATIENT = Patience(seconds=0, answer_seconds=5)
CONNECTIONS = b'{"connections": []}'
# Nothing listens on port 1.
DEAD = "127.0.0.1:1"
SECRETS = ("anna", "s3cret")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL"):
            monkeypatch.delenv(name)


def ask(url: str, patience: Patience = IMPATIENT) -> Any:
    return BatchQueryService(url, patience=patience).connections()


def told(url: str) -> str:
    with pytest.raises(Unavailable) as caught:
        ask(url)
    sentence = str(caught.value)
    # No chained error shows more.
    assert not any(
        secret in f"{sentence} {caught.value.__context__!r} {caught.value.__cause__!r}" for secret in SECRETS
    )
    return sentence


PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@pytest.mark.parametrize("variable", PROXY_VARIABLES)
@pytest.mark.parametrize("value", [f"http://{DEAD}", f"socks5://{DEAD}", "socks://[", "http://user:p@ss/word@x"])
def test_requests_to_this_machine_use_no_proxy(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with answering(content=CONNECTIONS) as (address, seen):
        port = address.rpartition(":")[2]
        hosts = (
            "localhost",
            "127.0.0.1",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "LOCALHOST",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0",
        )
        for host in hosts:
            assert ask(f"http://{host}:{port}") == ()
    assert len(seen) == len(hosts)
    for host in ("127.8.9.10", "[::1]", "[::]", "a.localhost", "localhost.", "ip6-localhost"):
        assert told(f"http://{host}:1") == f"{host}:1 can't be reached."


def test_a_port_that_is_too_high_is_said():
    assert "an address that is no URL" in told("http://127.0.0.1:99999")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("login", ["", "anna:s3cret@", "anna@"])
def test_other_requests_use_the_proxy(monkeypatch, variable, login):
    with answering(content=CONNECTIONS) as (proxy, seen):
        for value in (f"http://{login}{proxy}", f"{login}{proxy}"):
            monkeypatch.setenv(variable, value)
            assert ask("http://service.invalid") == ()
    assert all(line.startswith("GET http://service.invalid/chain-connections HTTP/1.1") for line in seen)
    assert [" Basic " in line for line in seen] == [bool(login)] * 2


def test_the_variable_in_lower_case_counts_first_and_is_named(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:2")
    monkeypatch.setenv("http_proxy", f"http://{DEAD}")
    assert told("http://service.invalid") == (
        f"service.invalid through the proxy {DEAD} (http_proxy) can't be reached."
    )


@pytest.mark.parametrize(("host", "exceptions"), EXCEPTED)
def test_no_proxy_excepts_names_addresses_and_networks(monkeypatch, host, exceptions):
    with answering(content=CONNECTIONS) as (proxy, seen):
        monkeypatch.setenv("ALL_PROXY", f"http://{proxy}")
        url = f"http://{host}:81"
        assert ask(url) == ()
        monkeypatch.setenv("NO_PROXY", exceptions)
        assert told(url) == f"{host}:81 can't be reached."
        assert len(seen) == 1


@pytest.mark.parametrize(("host", "exceptions"), NOT_EXCEPTED)
def test_what_no_proxy_does_not_name_uses_the_proxy(monkeypatch, host, exceptions):
    monkeypatch.setenv("NO_PROXY", exceptions)
    with answering(content=CONNECTIONS) as (proxy, seen):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert ask(f"http://{host}:81") == ()
    assert len(seen) == 1


@pytest.mark.parametrize(
    "value",
    [
        *("socks://x:1", "socks4://x:1", "ftp://x", "http://", "http:///x", ":8080", "://x", "http://x:port"),
        *(
            "http://[::1",
            "http://anna:s3cret@/",
            "http://anna:s3cret@x:70000",
            "http://anna:1/s3cret@x",
            "http://anna:s3cret#@x",
            "no://anna:s3cret@x",
        ),
    ],
)
def test_a_proxy_that_can_not_be_used_is_said_with_its_variable(monkeypatch, value):
    monkeypatch.setenv("ALL_PROXY", value)
    for url in ("http://service.invalid", "https://service.invalid"):
        assert told(url).startswith("The client can't use the proxy in ALL_PROXY. ")


@pytest.mark.parametrize("kind", ["socks5", "socks5h"])
def test_a_socks_proxy_without_its_package_is_said_with_its_variable(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("all_proxy", f"{kind}://anna:s3cret@{DEAD}")
    sentence = "The proxy in all_proxy is a SOCKS proxy, for which the Python package socksio is missing."
    assert told("https://service.invalid") == told("http://service.invalid") == sentence


def test_no_log_has_a_login(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with answering(content=CONNECTIONS) as (proxy, seen):
        monkeypatch.setenv("HTTP_PROXY", f"http://anna:s3cret@{proxy}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://anna:s3cret@{proxy}")
        assert ask("http://service.invalid") == ()
        told("https://service.invalid")
    assert len(seen) == 2
    assert "connect_tcp" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)


def test_a_dead_proxy_is_named_without_its_user_and_password(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://anna:s3cret@{DEAD}")
    monkeypatch.setenv("HTTPS_PROXY", f"http://anna:s3cret@{DEAD}")
    for scheme in ("http", "https"):
        name = f"the proxy {DEAD} ({scheme.upper()}_PROXY)"
        assert told(f"{scheme}://service.invalid") == f"service.invalid through {name} can't be reached."


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_login_is_named_and_not_asked_again(monkeypatch, scheme):
    with answering(407) as (proxy, seen):
        monkeypatch.setenv("ALL_PROXY", f"http://anna:s3cret@{proxy}")
        with pytest.raises(Unavailable) as caught:
            ask(f"{scheme}://service.invalid", Patience(seconds=60, first_pause=0))
    why = "407 Proxy Authentication Required"
    assert str(caught.value) == f"The proxy {proxy} (ALL_PROXY) refuses the request ({why})."
    assert len(seen) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("status", "content"),
    [(200, b"<html>Sign in to the hotel"), (302, b""), (403, b""), (404, b""), (502, b""), (503, b"")],
)
def test_whatever_else_a_proxy_answers_it_is_named(monkeypatch, scheme, status, content):
    with answering(status, content) as (proxy, _):
        monkeypatch.setenv("ALL_PROXY", f"http://anna:s3cret@{proxy}")
        with pytest.raises(BatchQueryError, match=rf"[Tt]he proxy {proxy} \(ALL_PROXY\)") as caught:
            ask(f"{scheme}://service.invalid")
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSLKEYLOGFILE"])
@pytest.mark.parametrize("kind", ["missing", "folder", "no certificates", "unreadable"])
def test_a_file_of_tls_that_can_not_be_used_is_said_with_its_variable(monkeypatch, tmp_path, variable, kind):
    path = tmp_path / "file.pem"
    if kind == "folder":
        path.mkdir()
    elif kind == "no certificates":
        path.write_text("-")
    elif kind == "unreadable":
        # Root may read every file, but no folder below a file.
        path.write_text("")
        path = path / "file.pem"
    elif variable == "SSLKEYLOGFILE":
        path = path / "file.log"
    monkeypatch.setenv(variable, str(path))
    with answering(content=CONNECTIONS) as (address, _):
        assert ask(f"http://{address}") == ()
        if variable == "SSL_CERT_FILE" or kind != "no certificates":
            assert told("https://service.invalid").endswith(f"Check {variable}.")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("SSL_CERT_FILE", certifi.where(), "self-signed certificate; trusted are the certificates of SSL_CERT_FILE"),
        ("SSL_CERT_DIR", "/missing", "self-signed certificate; trusted are the certificates of SSL_CERT_DIR"),
        ("SSL_CERT_FILE", str(CERTIFICATE), "ip address mismatch"),
    ],
)
def test_certificates_of_the_environment_are_named_if_they_do_not_suffice(monkeypatch, variable, value, why):
    monkeypatch.setenv(variable, value)
    speaks_tls, _ = FAILURES["a certificate that nobody signed"]
    with failing(speaks_tls) as url:
        host = url.removeprefix("https://")
        assert told(url) == f"{host} has no valid TLS certificate ({why})."
        monkeypatch.setenv("HTTP_PROXY", url)
        name = f"service.invalid through the proxy {host} (HTTP_PROXY)"
        assert told("http://service.invalid") == f"{name} has no valid TLS certificate ({why})."


def test_callers_that_do_not_block_get_the_same_errors(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks://x")

    async def ask_both(url: str) -> None:
        async with AsyncBatchQueryService(url, patience=IMPATIENT) as service:
            await service.connections()
            other = AsyncBatchQueryService("http://service.invalid", patience=IMPATIENT)
            with pytest.raises(Unavailable, match="ALL_PROXY"):
                await other.connections()
            await other.aclose()

    with answering(content=CONNECTIONS) as (address, _):
        asyncio.run(ask_both(f"http://{address}"))


@pytest.mark.parametrize(
    ("variable", "value", "url"),
    [
        ("ALL_PROXY", "socks5://x", "http://service.invalid"),
        ("ALL_PROXY", "socks://x", "http://service.invalid"),
        ("HTTP_PROXY", f"http://anna:s3cret@{DEAD}", "http://service.invalid"),
        ("SSL_CERT_FILE", "/missing.pem", "https://service.invalid"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_bqs_names_the_variable(monkeypatch, capsys, variable, value, url, options):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("BQS_PATIENCE", "0")
    monkeypatch.setenv(variable, value)
    assert run(["chains", "--url", url, *options]) == 4
    printed = capsys.readouterr()
    assert variable in printed.err
    assert not any(secret in printed.out + printed.err for secret in SECRETS)
