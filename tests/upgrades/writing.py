"""Write `baseline/`: a database in which everything is under way, and the two chains that it is about.

The version that is to be upgraded from writes it, by its own code. In its checkout, with this file in its tests, run
`pytest tests/upgrades/writing.py`, then again with `--database postgresql`. What is there is of commit f79de48e.
"""

import gzip
import lzma
import subprocess
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from devnet.servers import postgres_home
from proving.lanes import LaneKind, LaneName
from proving.models import Transaction, TransactionState
from proving.worker import turn
from queries.models import Batch, BatchStatus, Block
from tests.accounts import wallets
from tests.accounts.over_http import finish, start
from tests.proving.jumping import beacon_chain_of, jumping
from tests.proving.self_funded import itself
from tests.proving.sources import THERE, grow
from tests.proving.transactions import send_from_elsewhere
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    a_key,
    asking,
    balances,
    reconfigure,
    request,
    submit,
    work,
    work_until_done,
)

FOLDER = Path(__file__).parent / "baseline"
# What keys are derived by, and webhooks sealed.
SECRET = "the secret of the baseline, known to everybody"
# Its tests are run for years.
DEADLINE_SECONDS = 100 * 365 * 24 * 3600
STOPPED = "A test of upgrades."


@pytest.mark.django_db(transaction=True)
def test_write(settings, tmp_path):
    settings.API_KEY_SECRET, settings.BATCH_DEADLINE_SECONDS = SECRET, DEADLINE_SECONDS
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with DevChain(chain_id=THERE, hardfork="cancun") as there, DevChain(slots_in_an_epoch=4) as here:
        grow(there, 60)
        here.mine(5)
        with jumping(here, beacon_chain_of(there), settings, tmp_path) as jump:
            reconfigure(settings, "confirmations = 1", "confirmations = 3")
            jump.tell(59)
            _write(here)
        FOLDER.mkdir(exist_ok=True)
        for name, chain in (("here", here), ("there", there)):
            state = gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:]))
            _keep(f"{connection.vendor}.{name}", state)
        _keep(connection.vendor, _dump(tmp_path))


def _write(here: DevChain) -> None:
    alice, bob = a_key(ALICE), a_key(BOB)
    code = wallets.init_code(wallets.contract_wallet_code(ALICE)).hex()
    created = here.rpc("eth_sendTransactionSync", {"from": ALICE, "data": f"0x{code}"})
    message = start(to_checksum_address(created["contractAddress"]), here.chain_id, "")
    wallet = finish(message, wallets.sign(message, wallets.ALICE)).api_keys.get()

    def done(key: Any, body: dict[str, Any]) -> Batch:
        return work_until_done(submit(key, body), here, rounds=20)

    # Final.
    for key in (alice, bob, wallet):
        assert done(key, request(ALICE, BOB, block=here.head())).status == BatchStatus.DONE
    here.mine(10)
    work()
    of_time_1 = asking({"timestamp:1": {"accounts": {ALICE: {"props": ["BALANCE"]}}}})
    assert done(bob, of_time_1).status == BatchStatus.REJECTED
    submit(wallet, itself(request(BOB, block=here.head())))
    # Nobody listens there.
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["DONE", "STEP"]}
    done(alice, {**request(ALICE, block=here.head()), "webhook": hook})
    # A nonce that another has used.
    here.rpc("evm_setAutomine", False)
    displaced = submit(bob, request(ALICE, block=here.head() - 1))
    work()
    tx = displaced.queries.get().transactions.get()
    here.rpc("anvil_dropTransaction", tx.versions.get().hash)
    send_from_elsewhere(here, tx.nonce)
    here.mine()
    work_until_done(displaced, here, rounds=20)
    for _ in range(12):
        here.mine()
        work()
    # Confirmed.
    done(bob, request(BOB, block=here.head()))
    # Mined, and a jump under way, which is stopped.
    submit(alice, asking(balances([10, 11], CHARLIE), source=THERE))
    while not Transaction.objects.filter(state=TransactionState.PENDING).exists():
        work()
    here.mine()
    while Block.objects.filter(path_unit="jumps", path_left=1, waiting_for__startswith="Waiting for").count() < 2:
        work()
    call_command("stop", str(here.chain_id), "--source", str(THERE), "--reason", STOPPED)
    # Pending. After it is loaded, anvil knows the state of the last block no more.
    block = here.head() - 1
    submit(bob, request(CHARLIE, block=block))
    work()
    # A block that is to come.
    submit(alice, request(ALICE, block=here.head() + 5))
    work()
    # Admitted, and received.
    submit(bob, request(BOB, CHARLIE, block=block))
    turn(LaneName(LaneKind.ADMISSION, here.chain_id))
    submit(wallet, request(BOB, block=block))
    assert set(Transaction.objects.values_list("state", flat=True)) == set(TransactionState)
    assert set(Batch.objects.values_list("status", flat=True)) == set(BatchStatus)


def _keep(name: str, content: bytes) -> None:
    (FOLDER / f"{name}.xz").write_bytes(lzma.compress(content, preset=9))


def _dump(folder: Path) -> bytes:
    """Return SQLite's file, or statements that psycopg executes."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(folder / "copy")])
        return (folder / "copy").read_bytes()
    url = "postgresql://{USER}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    program = [str(Path(postgres_home()) / "bin" / "pg_dump"), "--no-owner", "--no-privileges", "--inserts", url]
    lines = subprocess.run(program, capture_output=True, check=True).stdout.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith((b"\\", b"--")))
