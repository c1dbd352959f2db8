"""The history of a database in `baseline/`. The version's own code makes it: users, an operator, workers and two chains
do what fills every table, over HTTP, by commands and by transactions.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from io import StringIO
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from eth_account import Account
from eth_utils.address import to_checksum_address

from accounts.models import ApiKey, User
from config.configured_chains import forget_chains
from devnet.devchain import PROJECT, DevChain
from proving.models import (
    FactsRegistry,
    Problem,
    Stop,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from queries.models import Batch, BatchStatus
from tests import deployed, factories, names, service, users
from tests.accounts import over_http, wallets
from tests.databases import same_database
from tests.proving import logs, self_funded, sources, transactions
from tests.proving.dear_registry import mine_broken, mine_dear, mine_without_block
from tests.proving.jumping import beacon_chain_of, jumping
from tests.proving.receiver import Receiver, receiver, tell_operator

# API keys are derived from this secret, and webhooks' secrets are sealed with it.
SECRET = "the secret of the baseline, known to everybody"
# Tests of upgrades are run for years.
DEADLINE_SECONDS = 100 * 365 * 24 * 3600
STOPPED = "A test of upgrades."
# Nothing listens on port 9.
NOWHERE = "http://127.0.0.1:9/hook"
KEY_FILE = 'key_file = "signer.key"'
ONE_SIGNER = f"[chains.signer]\n{KEY_FILE}"
BOTH_SIGNERS = f'[[chains.signers]]\nkey_file = "second.key"\n[[chains.signers]]\n{KEY_FILE}'
# The first one's service doesn't answer.
ONE_IS_SILENT = BOTH_SIGNERS.replace(
    'key_file = "second.key"', f'address = "{users.SECOND_SIGNER}"\nurl = "http://127.0.0.1:9"'
)
# A signer whose key another program uses too.
SHARED = Account.from_key(f"0x{7:064x}")
# It returns a word of ones for any call.
OTHER_CODE = "0x5f195f5260205ff3"
EVENTS = ["DONE", "REJECTED", "STEP", "WENT_BACK"]


@contextmanager
def connected(
    here: DevChain, there: DevChain, settings: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Configure the service: `here` with a short window, and `there`, whose attester shares the service's database."""
    for name, value in same_database().items():
        monkeypatch.setenv(name, value)
    with jumping(here, beacon_chain_of(there), settings, folder, of_here="window = 20", attested_by=sources.KEYS[0]):
        yield


def write(here: DevChain, there: DevChain, settings: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the history. The `settings` have the chains file of `connected`."""
    settings.BATCH_DEADLINE_SECONDS = DEADLINE_SECONDS
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    settings.OPERATOR_ADDRESSES = [service.BOB]
    tell_operator(settings, monkeypatch, NOWHERE)
    # Names are those of `here`.
    settings.CHAINS_FILE.write_text(f"[ens]\nchain = {here.chain_id}\n{settings.CHAINS_FILE.read_text()}")
    forget_chains()
    alice, bob, wallet = _people(here)
    _killed_worker(settings, folder)
    with receiver(lambda got: 410 if "gone" in got.path else 204) as hooks:
        _ended(here, settings, alice, bob, wallet, hooks)
    _doubtful_signer(here, settings, bob)
    _open(here, there, settings, alice, bob, wallet)


def _people(here: DevChain) -> tuple[ApiKey, ApiKey, ApiKey]:
    """Return the keys of Alice, of Bob, who is the operator, and of a contract wallet of Alice."""

    def sign_in(address: str, by: Any) -> User:
        message = over_http.start(address, here.chain_id, "")
        return over_http.finish(message, wallets.sign(message, by))

    code = wallets.init_code(wallets.contract_wallet_code(service.ALICE)).hex()
    created = here.rpc("eth_sendTransactionSync", {"from": service.ALICE, "data": f"0x{code}"})
    alice, bob = sign_in(service.ALICE, wallets.ALICE), sign_in(service.BOB, wallets.BOB)
    wallet = sign_in(to_checksum_address(created["contractAddress"]), wallets.ALICE)

    client = factories.client_of(service.ALICE)
    for name, access in (("reads", "read"), ("also reads", "read")):
        over_http.ask(client, "/dashboard/keys", {"name": name, "access": access})
    over_http.rotate(over_http.issue(alice, "rotated"), "rotated anew", timedelta(days=7))
    over_http.revoke(over_http.issue(alice, "revoked"))
    over_http.reveal(over_http.issue(alice, "shown"))
    over_http.ask(client, "/dashboard/webhooks/reveal", {})
    over_http.ask(client, "/dashboard/webhooks/rotate", {"overlap": "7d"})
    for path in ("/sign-out", "/sign-out/everywhere"):
        factories.client_of(service.ALICE).post(path)
    limits = {"max_open_batches": "70", "daily_limits_wei": '{"31337": "5000000000000000000"}'}
    unlimited = dict.fromkeys(("max_batches_per_minute", "max_queries_per_minute", "max_open_queries"), "")
    factories.client_of(service.BOB).post(f"/admin/accounts/user/{alice.pk}/change/", unlimited | limits)
    # An unused nonce, and a live session.
    over_http.start(service.CHARLIE, here.chain_id, "")
    factories.client_of(service.BOB)
    return alice.api_keys.get(name="default"), bob.api_keys.get(), wallet.api_keys.get()


def _killed_worker(settings: Any, folder: Path) -> None:
    """Run a worker until it has observed the chains, and kill it."""
    env = {**os.environ, **same_database(), "STATE_DIR": str(folder), "CHAINS_FILE": str(settings.CHAINS_FILE)}
    command = [sys.executable, "manage.py", "runworker", "--metrics-port", "0"]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=PROJECT, env={**env, "LEASE_SECONDS": "2"}, stdout=log, stderr=log)
    try:
        factories.until(WorkerHeartbeat.objects.exists, "a worker")
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    service.expire_leases()


def _ended(here: DevChain, settings: Any, alice: ApiKey, bob: ApiKey, wallet: ApiKey, hooks: Receiver) -> None:
    """Let batches end, in each way, and prune the first of them."""

    def done(key: ApiKey, body: dict[str, Any], status: BatchStatus = BatchStatus.DONE) -> Batch:
        batch = service.work_until_done(service.submit(key, body), here, rounds=20)
        assert batch.status == status
        return batch

    for key in (alice, bob, wallet):
        done(key, service.request(service.ALICE, service.BOB, block=here.head()))
    _replace_registry(here)
    here.mine(10)
    service.work()
    settings.KEEP_PROOFS_DAYS = settings.KEEP_STEPS_DAYS = settings.KEEP_CALLDATA_DAYS = 1
    _days_pass(2)
    call_command("prune", stdout=StringIO())
    settings.KEEP_PROOFS_DAYS = settings.KEEP_STEPS_DAYS = settings.KEEP_CALLDATA_DAYS = None

    # Commands wait for confirmations, and nobody mines meanwhile.
    service.reconfigure(settings, "confirmations = 1", "confirmations = 3")
    _problem_ends(settings, hooks)
    done(alice, _each_kind(here))
    # Hops prove it, because the registry's window is short.
    done(bob, service.request(service.CHARLIE, block=here.head() - 30))
    # In two transactions.
    slots = {service.CHARLIE: {"props": ["NONCE"], "slots": [hex(number) for number in range(440)]}}
    done(bob, service.asking({f"block:{here.head()}": {"accounts": slots}}))

    hook = {"url": hooks.url, "events": EVENTS}
    done(alice, service.asking({"timestamp:1": {"header": ["TIMESTAMP"]}}) | {"webhook": hook}, BatchStatus.REJECTED)
    here.mine()
    taken_back = done(alice, {**service.request(service.BOB, block=here.head() - 1), "webhook": hook})
    mined_in = Transaction.objects.filter(queries__batch=taken_back).get().block_number
    assert mined_in
    here.rpc("anvil_reorg", here.head() - mined_in + 1, [])
    service.work()
    taken_back.refresh_from_db()
    assert taken_back.status == BatchStatus.IN_PROGRESS
    service.work_until_done(taken_back, here)
    done(
        bob,
        {
            **service.request(service.CHARLIE, block=here.head()),
            "webhook": {"url": f"{hooks.url}/gone", "events": EVENTS},
        },
    )
    done(bob, {**service.request(service.ALICE, block=here.head()), "webhook": {"url": NOWHERE, "events": EVENTS}})
    for url in (hooks.url, NOWHERE):
        factories.client_of(service.ALICE).post("/webhooks/test", {"url": url})

    # One transaction is replaced, and another one cancelled.
    here.rpc("evm_setAutomine", False)
    for accounts, is_cancelled in (((service.CHARLIE,), False), ((service.CHARLIE, service.BOB), True)):
        batch = service.submit(alice, service.request(*accounts, block=here.head() - 1))
        service.work()
        transactions.age()
        if is_cancelled:
            assert Client().post(f"/batch-queries/{batch.pk}/cancel", headers=service.header(alice)).status_code == 200
        service.work()
        service.work_until_done(batch, here)
        here.mine()
        service.work()
    # One fails for each cause.
    for fail in (partial(mine_dear, more_gas=250_000), mine_broken, _mine_without_block_after_reorg):
        here.mine()
        batch = service.submit(alice, service.request(service.CHARLIE, block=here.head() - 1))
        service.work()
        fail(here)
        service.work_until_done(batch, here)
    here.rpc("evm_setAutomine", True)


def _mine_without_block_after_reorg(here: DevChain) -> None:
    here.mine()
    service.work()
    here.rpc("anvil_reorg", 1, [])
    service.work(3)
    mine_without_block(here)


def _days_pass(days: int) -> None:
    """Let the batches have ended earlier."""
    then = timezone.now() - timedelta(days=days)
    Batch.objects.update(created_at=then, finished_at=then)
    Transaction.objects.update(spent_at=then)


def _replace_registry(here: DevChain) -> None:
    """Replace a registry whose code has changed, and deploy a reader of the new one."""
    row = FactsRegistry.in_use.get(source_chain_id=here.chain_id)
    # The next block's header contains the state with the old code, so proofs at it show that code.
    here.mine()
    here.rpc("anvil_setCode", row.address, OTHER_CODE)
    here.mine()
    forget_chains()
    deployed.deploy(here.chain_id, here.chain_id, "--replace")
    call_command("deploy_reader", str(here.chain_id), stdout=StringIO(), stderr=StringIO())


def _problem_ends(settings: Any, hooks: Receiver) -> None:
    """Let a problem begin, of which the operator's webhook is told, and end, of which it can't be told."""
    settings.OPERATOR_WEBHOOK_URL = hooks.url
    call_command("stop", stdout=StringIO())
    for _ in range(2):
        service.work()
        _three_minutes_pass()
    service.work()
    settings.OPERATOR_WEBHOOK_URL = NOWHERE
    call_command("resume", stdout=StringIO())
    for _ in range(2):
        service.work()
        _three_minutes_pass()
    service.work()


def _three_minutes_pass() -> None:
    then = timezone.now() - timedelta(seconds=181)
    Problem.objects.update(began_at=then)
    Problem.objects.exclude(absent_since=None).update(absent_since=then)
    Problem.objects.exclude(due_at=None).update(due_at=then)


def _each_kind(here: DevChain) -> dict[str, Any]:
    """Return a request of each kind of fact, at blocks that are selected in each way."""
    names.Names(here).set("alice.eth", service.ALICE)
    number = logs.block_with_logs(here)
    _, failed, second = logs.hashes_of(here, number)
    account = {"accounts": {service.ALICE: {"props": ["BALANCE"]}}}
    named = {"slot": "0x1", "keys": [service.ALICE, {"member": "2"}], "layout": "solidity"}
    of_block = {
        "accounts": {"alice.eth": {"props": ["NONCE", "CODE_HASH"], "slots": ["0x5", named]}},
        "header": ["TIMESTAMP", "BASE_FEE_PER_GAS"],
        "transactions": {
            "0": {"props": [*logs.PROPERTIES, "HASH"]},
            failed: {"props": ["STATUS"]},
            second: {"logs": ["0"], "blockLogs": ["1", "2"]},
        },
    }
    time = int(here.rpc("eth_getBlockByNumber", hex(number), False)["timestamp"], 16)
    return service.asking(
        {
            f"block:{number}": of_block,
            f"timestamp:{time}": account,
            f"transaction:{failed}": account,
            "latest": account,
            "finalized": account,
        }
    )


def _doubtful_signer(here: DevChain, settings: Any, key: ApiKey) -> None:
    """Let another program use the nonces of a signer, until workers stop it."""
    here.rpc("anvil_setBalance", SHARED.address, hex(10**20))
    (settings.CHAINS_FILE.parent / "shared.key").write_text(SHARED.key.to_0x_hex())
    service.reconfigure(settings, KEY_FILE, 'key_file = "shared.key"')
    here.rpc("evm_setAutomine", False)
    batch = service.submit(key, service.request(service.ALICE, block=here.head() - 1))
    service.work()
    for _ in range(5):
        if Stop.objects.filter(signer=SHARED.address).exists():
            break
        tx = _pending().get(signer__address=SHARED.address)
        here.rpc("anvil_dropTransaction", tx.versions.get().hash)
        fields = {
            "chainId": here.chain_id,
            "nonce": tx.nonce,
            "gas": 21000,
            "gasPrice": 10**11,
            "to": service.ALICE,
            "value": 1,
        }
        here.rpc("eth_sendRawTransaction", SHARED.sign_transaction(fields).raw_transaction.to_0x_hex())
        # Until the nonce was used in a final block.
        here.mine(12)
        service.work()
    service.reconfigure(settings, 'key_file = "shared.key"', KEY_FILE)
    assert service.work_until_done(batch, here, rounds=20).status == BatchStatus.DONE


def _open(here: DevChain, there: DevChain, settings: Any, alice: ApiKey, bob: ApiKey, wallet: ApiKey) -> None:
    """Leave batches under way, in each status, and stop everything. The chain mines only on request."""
    chain_id = str(here.chain_id)
    for _ in range(12):
        here.mine()
        service.work()
    service.submit(wallet, self_funded.itself(service.request(service.CHARLIE, block=here.head() - 5)))
    # Confirmed.
    known = here.head() - 1
    service.work_until_done(service.submit(bob, service.request(service.BOB, block=known)), here)
    # Mined, and a jump under way.
    service.submit(alice, service.asking(service.balances([25, 26], service.CHARLIE), source=sources.THERE))
    _work_until(_pending().exists)
    here.mine()
    _work_until(Transaction.objects.filter(state=TransactionState.MINED).exists)
    service.submit(
        wallet, self_funded.itself(service.asking(service.balances([33], service.CHARLIE), source=sources.THERE))
    )
    service.work()
    call_command("stop", chain_id, "--source", str(sources.THERE), "--reason", STOPPED, stdout=StringIO())
    # Pending, of a signer that isn't signed for, and of another one. They and the next ones are at a block whose header
    # was accumulated: EVMs of an anvil that was loaded don't know the hashes of the blocks before.
    service.reconfigure(settings, ONE_SIGNER, ONE_IS_SILENT)
    for account in (service.ALICE, service.CHARLIE):
        service.submit(bob, service.request(account, block=known))
        service.work()
    # A node of another chain.
    service.reconfigure(settings, f'["{here.url}"]', f'["{here.url}", "{there.url}"]')
    # A block that is to come, and an index that the block lacks.
    service.submit(alice, service.request(service.ALICE, block=here.head() + 5))
    service.submit(alice, service.asking({f"block:{known}": {"transactions": {"5": {"props": ["STATUS"]}}}}))
    service.work()
    call_command("stop", chain_id, "--signer", users.SECOND_SIGNER, "--reason", STOPPED, stdout=StringIO())
    whole = f"/operator/stop?{urlencode({'what': f'Development chain ({chain_id})'})}"
    assert factories.client_of(service.BOB).post(whole, {"reason": STOPPED}).status_code == 302
    # Received.
    _with_idempotency_key(wallet, service.request(users.SIGNER, block=known))
    factories.client_of(service.BOB).get("/healthz")


def _work_until(condition: Callable[[], bool]) -> None:
    for _ in range(10):
        if condition():
            return
        service.work()
    raise AssertionError(service.waiting())


def _pending() -> Any:
    return Transaction.objects.filter(state=TransactionState.PENDING)


def _with_idempotency_key(key: ApiKey, body: dict[str, Any]) -> None:
    headers = {**service.header(key), "Idempotency-Key": "a key of the baseline"}
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=headers)
    assert answer.status_code == 200
