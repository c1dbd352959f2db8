"""Helpers for tests of the whole service: a configured chain, submitted batches, and single rounds of work."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from django.core.management import call_command
from django.db.models import Model, QuerySet
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import Lane
from queries.models import Batch, BatchStatus, Block
from tests.chains.lying_node import between
from tests.users import *  # noqa: F403  (many tests import them from here)
from tests.users import ALICE, SECOND_SIGNER_KEY, SIGNER_KEY, header

Row = TypeVar("Row", bound=Model)


class BlockMaker(Protocol):
    """A chain, or a client, that makes a block on request."""

    def mine(self) -> None: ...


# Properties in requests, in the order of their numbers in the registry.
ACCOUNT_FIELDS = ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]
HEADER_FIELDS = [
    *("PARENT_HASH", "UNCLES_HASH", "COINBASE", "STATE_ROOT", "TRANSACTIONS_ROOT", "RECEIPTS_ROOT", "LOGS_BLOOM"),
    *("DIFFICULTY", "BLOCK_NUMBER", "GAS_LIMIT", "GAS_USED", "TIMESTAMP", "EXTRA_DATA", "MIX_HASH", "NONCE"),
    *("BASE_FEE_PER_GAS", "WITHDRAWALS_ROOT", "BLOB_GAS_USED", "EXCESS_BLOB_GAS", "PARENT_BEACON_BLOCK_ROOT"),
    *("REQUESTS_HASH", "BLOCK_ACCESS_LIST_HASH", "SLOT_NUMBER"),
]
# The properties that headers of development chains have, whose newest fork is Prague.
PRAGUE_FIELDS = HEADER_FIELDS[:21]


def chains_toml(
    folder: Path, *urls: str, chain_id: int = 31337, chain: str = "", connection: str = "", signers: int = 1
) -> Path:
    """Write the chains file of a development chain connected to itself. `chain` and `connection` add lines."""
    (folder / "signer.key").write_text(SIGNER_KEY)
    (folder / "second.key").write_text(SECOND_SIGNER_KEY)
    files = ("signer.key", "second.key")
    several = "\n".join(f'[[chains.signers]]\nkey_file = "{file}"' for file in files[:signers])
    path = folder / "chains.toml"
    path.write_text(f"""
[[chains]]
id = {chain_id}
name = "Development chain"
rpc_urls = {json.dumps(urls)}
block_seconds = 1
{chain if "confirmations" in chain else "confirmations = 1" + chr(10) + chain}
{"" if "test_network" in chain else "test_network = true"}
{several if signers > 1 else "[chains.signer]" + chr(10) + 'key_file = "signer.key"'}

[[connections]]
source = {chain_id}
destination = {chain_id}
block_hash_source = "native"
{connection}
""")
    return path


def source_tables(
    chain_id: int, name: str, url: str, connection: str, *, chain: str = "", destination: int = 31337
) -> str:
    """Return the tables of a source chain and of its connection, with these lines."""
    return f"""
[[chains]]
id = {chain_id}
name = "{name}"
rpc_urls = ["{url}"]
{chain}

[[connections]]
source = {chain_id}
destination = {destination}
{connection}
"""


def attested_by(attesters: Mapping[str, str], threshold: int) -> str:
    """Return the lines of a connection by attesters, which are URLs by address."""
    tables = ", ".join(f'{{address = "{address}", url = "{url}"}}' for address, url in attesters.items())
    return f'block_hash_source = "attested"\nattesters = [{tables}]\nthreshold = {threshold}'


def reconfigure(settings: Any, old: str, new: str, *, count: int = -1) -> None:
    """Replace a text of the chains file, by default wherever it stands there."""
    text = settings.CHAINS_FILE.read_text()
    assert old in text
    settings.CHAINS_FILE.write_text(text.replace(old, new, count))
    forget_chains()


@contextmanager
def changed_replies(settings: Any, chain: DevChain, change: Callable[[Any, Any], list[Any]]) -> Iterator[str]:
    """Let the service ask the chain's node through one that `change`s replies (`between`). Yield that one's URL."""
    with between(chain.url, change) as url:
        reconfigure(settings, chain.url, url)
        yield url


@contextmanager
def recorded_methods(settings: Any, chain: DevChain) -> Iterator[list[str]]:
    """Let the service ask the chain's node through one that records. Yield the methods that it was asked."""
    methods: list[str] = []

    def record(question: Any, reply: Any) -> list[Any]:
        methods.append(question["method"])
        return [reply]

    with changed_replies(settings, chain, record):
        yield methods


def asking(
    blocks: Mapping[str, Any], *, fee: int | str = 0, source: int = 31337, destination: int = 31337
) -> dict[str, Any]:
    """Return the body of a batch about these blocks of a source chain, by selector."""
    return {"destinationChainId": str(destination), "fee": str(fee), "data": {str(source): blocks}}


def balances(numbers: Iterable[int], account: str = ALICE) -> dict[str, Any]:
    """Return a request's blocks for the account's balance at these numbers."""
    return {f"block:{number}": {"accounts": {account: {"props": ["BALANCE"]}}} for number in numbers}


def request(
    *accounts: str, block: int, props: list[str] | None = None, fee: int = 0, chain_id: int = 31337
) -> dict[str, Any]:
    """Return the body of a simple batch (docs/specification.md, "Batch query") about these accounts."""
    entry = {"props": props or ["BALANCE"], "slots": []}
    blocks = {f"block:{block}": {"accounts": dict.fromkeys(accounts, entry)}}
    return asking(blocks, fee=fee, source=chain_id, destination=chain_id)


def submit(key: ApiKey, body: dict[str, Any]) -> Batch:
    answer = Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))
    assert answer.status_code == 200, answer.text
    return Batch.objects.get(pk=answer.json()["internalId"])


def work(rounds: int = 1, chain: BlockMaker | None = None) -> None:
    """Make all rows due, and do all work once, as a worker does. If a `chain` is given, mine it after each round."""
    for _ in range(rounds):
        call_command("runworker", once=True)
        if chain:
            chain.mine()


def work_until_done(batch: Batch, chain: BlockMaker | None = None, rounds: int = 10) -> Batch:
    """Work until the batch has ended. If a `chain` is given, mine it between the rounds."""
    for _ in range(rounds):
        work()
        batch.refresh_from_db()
        if batch.status in {BatchStatus.DONE, BatchStatus.REJECTED}:
            return batch
        if chain:
            chain.mine()
    raise AssertionError(f"{batch.pk} is still {batch.status} after {rounds} rounds: {waiting()}")


def done(batch: Batch, chain: BlockMaker | None = None, rounds: int = 10) -> Batch:
    """Work until the batch is DONE. If a `chain` is given, mine it between the rounds."""
    assert work_until_done(batch, chain, rounds).status == BatchStatus.DONE
    return batch


def expire_leases() -> None:
    """Let a killed worker's lanes expire."""
    Lane.objects.exclude(until=None).update(until=timezone.now() - timedelta(seconds=1))


def expire(batches: QuerySet[Batch] | None = None) -> None:
    """Let the deadlines of batches, by default of all, pass long ago, so that no chain needs to be asked."""
    long_ago = timezone.now() - timedelta(days=2)
    (Batch.objects.all() if batches is None else batches).update(deadline_at=long_ago, overdue_since=long_ago)


def waiting() -> list[str]:
    """Return the sentences that say why batches and blocks wait."""
    reasons = [*Batch.objects.values_list("wait", flat=True), *Block.objects.values_list("wait", flat=True)]
    return [str(reason) for reason in reasons if reason]


def fresh(row: Row) -> Row:
    row.refresh_from_db()
    return row
