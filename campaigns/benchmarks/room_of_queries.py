"""How much room 10,000 queries take in the database, before and after pruning: `make bench-room`.

On SQLite, and with `--postgresql` on a PostgreSQL of its own. Proofs are as long as those of accounts of Mainnet, and
transactions carry as much as they may, with 1,500 bytes for each account.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

QUERIES = 10_000
# Trie nodes of an account of Mainnet: six full branches, a smaller one, and the leaf.
_NODES = (532, 532, 532, 532, 532, 532, 340, 112)
_ACCOUNT_BYTES, _TRANSACTION_BYTES = 1500, 110_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgresql", action="store_true", help="measure PostgreSQL too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        _measure()
        return
    with tempfile.TemporaryDirectory() as folder:
        _run(STATE_DIR=folder)
    if options.postgresql:
        from devnet.servers import Postgres  # noqa: PLC0415 (not everybody has it)

        with tempfile.TemporaryDirectory() as folder, Postgres() as server:
            _run(STATE_DIR=folder, DATABASE_URL=server.url())


def _run(**variables: str) -> None:
    """In a process of its own, which reads these settings."""
    kept = dict.fromkeys(("KEEP_PROOFS_DAYS", "KEEP_STEPS_DAYS", "KEEP_CALLDATA_DAYS"), "30")
    here = [sys.executable, "-m", "campaigns.benchmarks.room_of_queries", "--here"]
    subprocess.run(here, env=os.environ | kept | variables, check=True)


def _measure() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django  # noqa: PLC0415 (the settings come first)

    django.setup()
    from django.core.management import call_command  # noqa: PLC0415
    from django.db import connection  # noqa: PLC0415

    from proving import pruning  # noqa: PLC0415

    call_command("migrate", interactive=False, verbosity=0)
    size = _size_of_postgresql if connection.vendor == "postgresql" else _size_of_sqlite
    empty = size()
    print(f"{connection.vendor}, {QUERIES:,} queries, MB:")
    print(f"  {'asked and proven':32} {_megabytes(size, empty, _prove):8.1f}")
    print(f"  {'pruned':32} {_megabytes(size, empty, pruning.prune_now):8.1f}")
    if connection.vendor == "postgresql":
        print(f"  {'after VACUUM FULL':32} {_megabytes(size, empty, lambda: _execute('VACUUM FULL')):8.1f}")
    else:
        print(f"  {'of these free for what comes next':32} {_free_in_sqlite() / 1e6:8.1f}")
        vacuum = lambda: call_command("prune", vacuum=True, stdout=open(os.devnull, "w"))  # noqa: E731, SIM115, PTH123
        print(f"  {'after prune --vacuum':32} {_megabytes(size, empty, vacuum):8.1f}")


def _megabytes(size: Callable[[], int], empty: int, change: Callable[[], object]) -> float:
    """Make the change. Return how much is taken after it, beyond `empty`, in megabytes."""
    change()
    return (size() - empty) / 1e6


def _prove() -> None:
    from django.db import transaction  # noqa: PLC0415 (Django is set up by now)
    from django.utils import timezone  # noqa: PLC0415

    from proving.models import AccountProof, SignedTransaction, Signer, Transaction, TransactionState  # noqa: PLC0415
    from queries import progress  # noqa: PLC0415
    from queries.models import Batch, Block, StepKind  # noqa: PLC0415
    from tests.service import SIGNER, a_key, request, submit  # noqa: PLC0415

    accounts = [f"0x{number:040x}" for number in range(QUERIES)]
    batch = submit(a_key(), request(*accounts, block=12))
    progress.admit(batch, 31337, estimated_gas=1, estimated_wei=1)
    block = Block.objects.get()
    queries = list(batch.queries.values_list("pk", flat=True))
    for kind in StepKind:
        progress.complete(queries, kind, transaction_hash="" if kind == StepKind.INITIAL_STATE else "0x" + "ab" * 32)
    word = "0x" + "cd" * 32
    for at in range(0, QUERIES, 500):
        AccountProof.objects.bulk_create(
            AccountProof(
                block=block,
                address=address,
                nodes=[f"0x{os.urandom(length).hex()}" for length in _NODES],
                nonce=7,
                balance=10**18,
                storage_root=word,
                code_hash=word,
            )
            for address in accounts[at : at + 500]
        )
    long_ago = timezone.now() - timedelta(days=31)
    signer = Signer.objects.create(chain_id=31337, address=SIGNER)
    with transaction.atomic():
        for nonce in range(QUERIES * _ACCOUNT_BYTES // _TRANSACTION_BYTES):
            data = os.urandom(_TRANSACTION_BYTES)
            tx = Transaction.objects.create(
                signer=signer, nonce=nonce, data=data, gas_limit=1, state=TransactionState.FINAL, spent_at=long_ago
            )
            tx.queries.set(queries[nonce * 73 : nonce * 73 + 73])
            SignedTransaction.objects.create(
                transaction=tx, hash=f"0x{nonce:064x}", raw=data, max_fee_per_gas=1, max_priority_fee_per_gas=1
            )
    Block.objects.update(due_at=None)
    Batch.objects.update(finished_at=long_ago)


def _execute(sql: str) -> int:
    from django.db import connection  # noqa: PLC0415 (Django is set up by now)

    with connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return int(row[0]) if row else 0


def _size_of_sqlite() -> int:
    """Return the size of the file in bytes, with all that was committed."""
    _execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(os.environ["STATE_DIR"], "db.sqlite3").stat().st_size


def _free_in_sqlite() -> int:
    return _execute("SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size")


def _size_of_postgresql() -> int:
    """Return the size of the database in bytes, after what autovacuum does.

    What was deleted is then free for what comes next.
    """
    _execute("VACUUM")
    return _execute("SELECT pg_database_size(current_database())")


if __name__ == "__main__":
    main()
