"""Rows for pages about the whole service: chains, the operator's page, a user's usage in a month."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from eth_utils.crypto import keccak

from proving.models import AttesterWatch, ChainWatch, FactsRegistry, Share, Signer, Stop, Transaction, WorkerHeartbeat
from proving.registries.deployments import expected_code
from queries.models import Batch, BatchStatus, Block
from queries.waits import wait
from tests.browser import states
from tests.explorer.batches import SOURCE, a_batch, accept, deployed
from tests.service import ALICE, BOB, SIGNER, a_key

ETHER, GWEI = 10**18, 10**9
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def seen_chains() -> None:
    """Store answers of both chains and of one of two attesters."""
    now = timezone.now()
    seen: dict[str, Any] = {"looked_at": now, "seen_at": now, "timestamp": int(now.timestamp()), "keeps_hashes": True}
    heads: dict[int, dict[str, Any]] = {
        31337: {"number": 23_418_077, "final": 23_418_013, "gas_price": GWEI, "measured_head": 9, "oldest_provable": 1},
        SOURCE: {"number": 9_104_221, "measured_head": 9_104_000, "oldest_provable": 9_103_872},
    }
    nodes: dict[int, list[tuple[str, int | None]]] = {
        31337: [("node.example", 1), ("archive.example", None)],
        SOURCE: [("node.example", 9_103_872), ("archive.example", 1)],
    }
    for chain_id, values in heads.items():
        values["proving_nodes"] = [{"host": host, "oldest": oldest} for host, oldest in nodes[chain_id]]
        ChainWatch.objects.update_or_create(chain_id=chain_id, defaults=seen | values)
        deployed(chain_id)
    for registry in FactsRegistry.objects.all():
        registry.code_hash = f"0x{keccak(expected_code(registry)).hex()}"
        registry.save()
    since = (now - 9 * MINUTE).isoformat()
    answers = [
        {"address": ALICE, "answer": "signed", "sentence": "attester.example signs.", "since": since},
        {"address": BOB, "answer": "unreachable", "sentence": "other.example can't be reached.", "since": since},
    ]
    AttesterWatch.objects.create(
        source_chain_id=SOURCE,
        destination_chain_id=31337,
        asked_at=now,
        answered_at=now,
        block=9_104_157,
        answers=answers,
    )
    states.a_page_of_batches()
    Batch.objects.filter(status=BatchStatus.DONE).update(spent=108_000 * GWEI)


def attesters_not_asked_lately() -> None:
    """Store what `seen_chains` does, and let attesters be asked no more for nine minutes."""
    seen_chains()
    AttesterWatch.objects.update(asked_at=timezone.now() - 9 * MINUTE, answered_at=timezone.now() - 9 * MINUTE)


def operated() -> None:
    """Store rows that need the operator: a registry with a notice, failing blocks, a resting node, a silent worker."""
    seen_chains()
    now = timezone.now()
    balances = {"balances": {SIGNER: str(ETHER)}, "spent_in_day": ETHER // 20}
    ChainWatch.objects.filter(chain_id=31337).update(**balances)
    resting = {"host": "node.example", "problem": "node.example can't be reached"}
    ChainWatch.objects.filter(chain_id=SOURCE).update(
        resting_nodes=[resting | {"since": (now - 3 * MINUTE).isoformat()}]
    )
    signer, _ = Signer.objects.get_or_create(chain_id=31337, address=SIGNER)
    for nonce, (ago, state) in enumerate(
        ((3 * DAY, "FINAL"), (DAY / 2, "FINAL"), (2 * MINUTE, "MINED"), (MINUTE / 2, "PENDING")), 1000
    ):
        tx = Transaction.objects.create(
            signer=signer,
            nonce=nonce,
            data=b"",
            gas_limit=1,
            state=state,
            spent_at=now - ago,
            reserved_gwei=ETHER // 100 // GWEI,
        )
    _versions(tx)
    reason = "The signer's key may have leaked. A new one is being made."
    Stop.objects.create(chain_id=31337, signer=SIGNER, by=ALICE, reason=reason, since=now - 3 * MINUTE)
    a_worker = {"started_at": now - DAY, "beat_at": now - 4 * MINUTE}
    WorkerHeartbeat.objects.create(worker="silent:1", **a_worker)
    FactsRegistry.objects.filter(source_chain_id=SOURCE).update(
        risk=wait("attester_conflict", problem="Attesters contradict the nodes of chain 5."), risk_seen_at=now
    )
    failing = accept(a_batch(block=7))
    Block.objects.filter(queries__batch=failing).update(
        failing_since=now - 14 * MINUTE,
        attempts=6,
        due_at=now + MINUTE,
        wait=wait("node_fails", problem="No node serves the proof."),
    )
    Share.objects.create(transaction=tx, batch=failing, gas=1, wei=1, weight=1)
    Batch.objects.filter(pk=a_batch(block=8).pk).update(
        failing_since=now - 2 * MINUTE,
        attempts=1,
        due_at=now + MINUTE,
        wait=wait("node_fails", problem="No node of Other chain (5) can be used: node.example can't be reached."),
    )
    Batch.objects.filter(status=BatchStatus.DONE).update(gas_used=161_204)


def _versions(tx: Transaction) -> None:
    """Store a replaced version of a pending transaction, one that nodes refuse, and a cancellation to be signed."""
    tx.error = wait("node_fails", problem="The nodes refuse it: replacement transaction underpriced.")
    tx.save()
    now = timezone.now()
    for ago, gwei, more in (
        (3, 20, {"hash": f"0x{'c1' * 32}", "broadcast_at": now - 3 * MINUTE}),
        (2, 23, {"hash": f"0x{'c2' * 32}", "broadcast_at": now - MINUTE, "refused_at": now - MINUTE}),
        (1, 26, {"is_cancellation": True}),
    ):
        fees = {"max_fee_per_gas": gwei * GWEI, "max_priority_fee_per_gas": GWEI // 10}
        tx.versions.create(raw=b"", created_at=now - ago * MINUTE, **fees, **more)


def a_month() -> None:
    """Store batches of Alice that ended on 28 of the last thirty days."""
    key = a_key()
    user, now = key.user, timezone.now()
    for ago in range(1, 30):
        if ago in {9, 17}:
            continue
        for number in range(1 + ago * 7 % 5):
            is_rejected = (ago, number) in {(6, 0), (20, 1)}
            size = 40 + ago * 37 % 90
            Batch.objects.create(
                user=user,
                api_key=key,
                destination_chain_id=31337,
                fee=0,
                request="{}",
                deadline_at=now,
                status=BatchStatus.REJECTED if is_rejected else BatchStatus.DONE,
                created_at=now - ago * DAY - MINUTE,
                finished_at=now - ago * DAY,
                size=size,
                gas_used=0 if is_rejected else 160_000 + 21_000 * size,
            )
    states.a_page_of_batches()
