"""Signers whose keys a service holds: what it returns is believed only after it was compared with the request."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import rlp
from django.core.management import CommandError, call_command
from django.test import Client

from devnet.devchain import DevChain
from proving.models import SignedTransaction, Signer, Transaction
from queries.models import Batch, BatchStatus
from tests.chains.lying_node import Raw
from tests.proving.chain_state import ACCOUNT_PROVEN, events, signer_nonce
from tests.proving.kills import BEFORE_AND_AFTER
from tests.proving.proxy import Proxy
from tests.proving.signing_service import (
    behind_tls,
    broadcasting,
    encrypted,
    high_s,
    name_service,
    refusing,
    service_of,
    signature_of,
    signed,
    with_signature,
)
from tests.proving.transactions import work_aged
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    asking,
    balances,
    fresh,
    header,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)
from tests.serving.nginx import NGINX, OPENSSL
from tests.users import SECOND_SIGNER, SECOND_SIGNER_KEY, SIGNER

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.usefixtures("in_a_hurry")]

TLS = [
    'ca_file = "server.pem"',
    'client_certificate_file = "client.pem"',
    'client_key_file = "client.key"',
    'token_file = "token"',
]


def a_batch(key, service: DevChain):
    service.mine()
    return submit(key, request(ALICE, block=service.head()))


def codes() -> set[str]:
    return set(Client().get("/healthz").json()["codes"])


# --- With TLS, a client certificate and a token -----------------------------------------------------------------------


@pytest.mark.story
@pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed")
def test_a_service_behind_tls_signs_with_certificate_and_token(service, key, settings, tmp_path, capfd, caplog):
    with behind_tls(service, tmp_path) as url:
        name_service(settings, f"{url}/a-secret-path", *TLS)
        with pytest.raises(CommandError, match="no_worker"):
            call_command("check_chains")
        assert f"The service {url.removeprefix('https://')} answers for it." in capfd.readouterr().out
        batch = a_batch(key, service)
        assert work_until_done(batch).status == BatchStatus.DONE
        # Files are read anew each time, so a token and certificates may be renewed while the service runs.
        whole = {name: (tmp_path / name).read_text() for name in ("token", "client.pem", "client.key", "server.pem")}
        for name, other, told in (
            ("token", "another", "HTTP status 401"),
            ("token", "two\nlines", "its token is unreadable"),
            ("client.pem", whole["server.pem"], "its TLS files are unusable"),
            ("client.key", encrypted(whole["client.key"]), "its TLS files are unusable"),
            ("server.pem", whole["client.pem"], "has no valid TLS certificate"),
        ):
            (tmp_path / name).write_text(other)
            waits = a_batch(key, service)
            work()
            assert told in waiting()[0]
            with pytest.raises(CommandError, match=f"The service .*{told}"):
                call_command("check_chains")
            (tmp_path / name).write_text(whole[name])
            assert work_until_done(waits).status == BatchStatus.DONE
    assert "a-secret-path" not in caplog.text
    assert "another" not in caplog.text
    assert "pass phrase" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('client_key_file = "client.key"\n', "", "client_certificate_file and client_key_file, or neither"),
        ("https:", "http:", "must have an https URL"),
        (f'address = "{SIGNER}"', "", "address: Field required"),
        (f'address = "{SIGNER}"', f'address = "{SIGNER}"\nkey_file = "a"', "key_file: is not known here"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(service, settings, old, new, fault):
    name_service(settings, "https://127.0.0.1:1", *TLS)
    reconfigure(settings, old, new)
    answer = Client().get("/healthz").json()
    assert "chains_file" in answer["codes"]
    with pytest.raises(CommandError, match=fault):
        call_command("check_chains")


def test_a_service_without_the_account_is_told_before_it_is_needed(service, settings):
    name_service(settings, service.url)
    reconfigure(settings, SIGNER, "0x00000000000000000000000000000000000000aa")
    with pytest.raises(
        CommandError, match="does not name 0x00000000000000000000000000000000000000AA among its accounts"
    ):
        call_command("check_chains")


# --- Services that misbehave ------------------------------------------------------------------------------------------

# Answers of a service instead of the signature, with the sentence that is told then, by the code of the wait.
MISBEHAVIOUR: dict[str, dict[str, tuple[Callable[[dict[str, Any]], Any], str]]] = {
    "signed_otherwise": {
        "another nonce": (lambda of: signed(of, nonce=hex(int(of["nonce"], 16) + 1)), "requested one: nonce"),
        "another recipient": (lambda of: signed(of, to=BOB), "requested one: to"),
        "a value": (lambda of: signed(of, value="0x1"), "requested one: value"),
        "another chain": (lambda of: signed(of, chainId="0x1"), "requested one: chainId"),
        "higher fees": (
            lambda of: signed(of, maxFeePerGas=hex(2 * int(of["maxFeePerGas"], 16))),
            "requested one: maxFeePerGas",
        ),
        "an access list": (
            lambda of: signed(of, accessList=[{"address": BOB, "storageKeys": []}]),
            "requested one: accessList",
        ),
        "another type": (
            lambda of: signed({name: of[name] for name in of if not re.search("Fee|type", name)}, gasPrice="0xffffff"),
            "not a signed transaction of type 2",
        ),
        "a high s": (lambda of: high_s(signed(of)), "the higher of its two s values"),
        "bytes behind": (lambda of: signed(of) + b"\0", "not a signed transaction of type 2"),
        "a long list": (lambda _: b"\x02" + rlp.encode([b""] * 20_000), "20004 bytes, too many for"),
        "an old signature": (
            lambda of: with_signature(signed(of), lambda *_: signature_of(signed(of, nonce="0x0", data="0x"))),
            "a signature of another account, or of another transaction",
        ),
        "another key": (lambda of: signed(of, SECOND_SIGNER_KEY), "a signature of another account"),
        "no bytes": (lambda _: Raw(b'{"jsonrpc": "2.0", "id": 1, "result": null}'), "data that is not hexadecimal"),
    },
    "signer_refuses": {
        "refuses": (refusing, "refuses to sign: JSON-RPC error -32011"),
        "refuses with any number": (
            lambda _: Raw(b'{"error": {"code": %s}}' % (b"9" * 4000)),
            "refuses to sign: JSON-RPC error.",
        ),
        "forbids": (lambda _: Raw(b"no", status=403), "refuses to sign: HTTP status 403"),
    },
    "signer_silent": {
        "fails": (lambda _: Raw(b"<html>", status=503), "answered with HTTP status 503"),
        "says anything": (lambda _: Raw(b"[]"), "something that is not JSON-RPC"),
        "redirects": (
            lambda _: Raw(b"", status=307, headers={"Location": "http://127.0.0.1:1"}),
            "answered with HTTP status 307",
        ),
        "hangs": (lambda _: Raw(b" " * 100, seconds_between_bytes=0.1), "did not answer within"),
        "never ends": (lambda _: Raw(b" " * 2_000_000), "sent more than"),
    },
}
MISBEHAVING = [(name, code, *row) for code, rows in MISBEHAVIOUR.items() for name, row in rows.items()]


@pytest.mark.long
def test_a_service_that_does_not_sign_what_it_is_asked_is_asked_again(service, key, settings):
    """Nothing that it returns is sent, nothing more is reserved for it, and in the end everything is done once."""
    asked: list[Any] = []
    signs: list[Callable[[dict[str, Any]], Any]] = []

    def answer(fields: dict[str, Any]) -> Any:
        asked.append(fields)
        return signs[-1](fields)

    with service_of(answer) as url:
        name_service(settings, url)
        service.mine()
        batches = [submit(key, request(each, block=service.head())) for each in (ALICE, BOB)]
        nonce = signer_nonce(service)
        for name, code, wrong, told in MISBEHAVING:
            signs.append(wrong)
            work(2)
            waits = Client().get(f"/batch-queries/{batches[0].pk}", headers=header(key)).json()["waits"]
            assert [wait["code"] for wait in waits] == [code], name
            assert told in waits[0]["sentence"], name
            assert "secrets of the service" not in str(waits)
            assert "signer_not_signing" in codes()
            assert signer_nonce(service, "pending") == nonce
            later = submit(key, request(CHARLIE, block=service.head() - 1))
            work()
            assert Transaction.objects.filter(signer__address=SIGNER, nonce__gte=nonce).count() == 1
            batches.append(later)
        # Fees of a transaction that was signed late may be raised at once, which asks for other fields.
        assert {str(fields) for fields in asked} == {str(asked[0])}
        signs.append(signed)
        for each in batches:
            assert work_until_done(each).status == BatchStatus.DONE
    assert "signer_not_signing" not in codes()
    assert len(events(service, ACCOUNT_PROVEN)) == 3
    mined = Transaction.objects.filter(nonce__gte=nonce).values_list("hash", flat=True)
    receipts = [service.rpc("eth_getTransactionReceipt", tx_hash) for tx_hash in mined]
    gas = sum(Batch.objects.get(pk=each.pk).gas_used for each in batches)
    # Shares are rounded down.
    assert 0 <= sum(int(receipt["gasUsed"], 16) for receipt in receipts) - gas < len(batches)


@pytest.mark.long
def test_another_signer_sends_while_a_service_is_away_for_an_hour(two_signers, key, settings):
    with Proxy(two_signers.url) as proxy:
        reconfigure(settings, 'key_file = "signer.key"', f'address = "{SIGNER}"\nurl = "{proxy.url}"')
        proxy.down()
        first = a_batch(key, two_signers)
        work()
        assert "can't be reached" in waiting()[0]
        second = a_batch(key, two_signers)
        assert work_until_done(second).status == BatchStatus.DONE
        assert Transaction.objects.filter(queries__batch=second).get().signer.address == SECOND_SIGNER
        work_aged()
        assert "can't be reached" in waiting()[0]
        proxy.up()
        assert work_until_done(first).status == BatchStatus.DONE
    assert Transaction.objects.filter(queries__batch=first).get().signer.address == SIGNER
    assert len(events(two_signers, ACCOUNT_PROVEN)) == 2


@pytest.mark.long
@pytest.mark.usefixtures("separate_transactions")
def test_a_service_that_signs_one_after_another_is_asked_for_no_more_than_it_signs(service, key, settings):
    """It signs also what nobody waits for any more, so what it is asked for in vain delays the rest."""
    service.rpc("evm_setAutomine", False)
    one_by_one = threading.Lock()

    def sign(fields: dict[str, Any]) -> bytes:
        with one_by_one:
            time.sleep(0.3)
        return signed(fields)

    service.mine(8)
    batch = submit(key, asking(balances(range(service.head() - 7, service.head() + 1))))
    work()
    # A kill between the reservation and the first signature leaves the same rows.
    pending = SignedTransaction.objects.filter(transaction__state="PENDING")
    assert pending.update(hash=None, raw=b"", broadcast_at=None) == 8
    service.rpc("anvil_dropAllTransactions")
    with service_of(sign) as url:
        name_service(settings, url)
        for _ in range(20):
            work()
            if not pending.filter(hash=None).exists():
                break
        service.rpc("evm_setAutomine", True)
        assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_a_replacement_that_is_not_signed_is_told_and_holds_up_nothing(service, key, settings):
    asked: list[str] = []

    def sign(fields: dict[str, Any]) -> Any:
        asked.append(fields["maxFeePerGas"])
        return signed(fields) if fields["maxFeePerGas"] == asked[0] else refusing(fields)

    service.rpc("evm_setAutomine", False)
    with service_of(sign) as url:
        name_service(settings, url)
        batch = a_batch(key, service)
        work()
        work_aged()
        work()
        assert len(set(asked)) == 2
        assert "refuses to sign" in waiting()[0]
        waits = Client().get(f"/batch-queries/{batch.pk}", headers=header(key)).json()["waits"]
        assert [wait["code"] for wait in waits] == ["signer_refuses"]
        service.rpc("anvil_dropAllTransactions")
        SignedTransaction.objects.update(broadcast_at=None)
        work()
        # The next turn finds it in a final block, and only a later one sees that nothing is left to sign.
        service.mine(70)
        work()
        asked.clear()
        service.rpc("evm_setAutomine", True)
        later = submit(key, request(BOB, block=service.head()))
        assert work_until_done(later).status == BatchStatus.DONE
    assert fresh(batch).status == BatchStatus.DONE
    assert "signer_not_signing" not in codes()


# --- A service that broadcasts by itself ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("then", ["returns it", "breaks off", "refuses"])
def test_a_transaction_that_the_service_broadcasts_itself_is_paid_once(service, key, settings, then):
    answers = {"returns it": lambda raw: raw, "breaks off": lambda _: Raw(b"", status=502), "refuses": refusing}
    is_well = False
    sign = broadcasting(service, lambda raw: raw if is_well else answers[then](raw))
    with service_of(sign) as url:
        name_service(settings, url)
        batch = a_batch(key, service)
        nonce = signer_nonce(service)
        work(3)
        is_well = True
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
    assert signer_nonce(service, "pending") == nonce + 1
    assert len(events(service, ACCOUNT_PROVEN)) == 1
    version = SignedTransaction.objects.get(transaction__nonce=nonce)
    receipt = service.rpc("eth_getTransactionReceipt", version.hash)
    assert fresh(batch).gas_used == int(receipt["gasUsed"], 16)


@pytest.mark.long
def test_a_nonce_that_the_service_used_itself_holds_up_nothing(service, key, settings):
    """The service broadcasts and never returns anything."""
    sign = broadcasting(service, refusing)
    with service_of(sign) as url:
        name_service(settings, url)
        batch = a_batch(key, service)
        nonce = signer_nonce(service)
        work()
        # A final block has the nonce.
        service.mine(70)
        assert work_until_done(batch, service).status == BatchStatus.DONE
        work(2)
    assert signer_nonce(service, "pending") == nonce + 1
    assert Signer.objects.get(address=SIGNER).signing_problem is None
    assert len(events(service, ACCOUNT_PROVEN)) == 1


# --- Kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("after", BEFORE_AND_AFTER)
def test_a_batch_is_signed_by_a_service_once_wherever_the_worker_is_killed(service, key, settings, killing, after):
    name_service(settings, service.url)
    batches = 0
    for exchange in killing.exchanges(after=after):
        batches += 1
        service.mine(5)
        work(2)
        nonce = signer_nonce(service)
        batch = submit(key, request(ALICE, block=service.head()))
        with killing.at(exchange, after=after):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"killed at exchange {exchange}"
    assert exchange > 7
    assert len(events(service, ACCOUNT_PROVEN)) == batches
