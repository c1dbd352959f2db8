"""What tests of the whole service share: a configured chain, submitted batches, and work done step by step."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey, User
from chains import together
from chains.together import Raised
from config.configured_chains import forget_chains, get_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving.health import chain_checks
from proving.models import Signer
from proving.worker.due import due
from queries import batch_request, submission
from queries.models import Batch, BatchStatus, Block

ALICE, BOB, CHARLIE, SIGNER = (address for address, _ in ACCOUNTS)
SIGNER_KEY = ACCOUNTS[3][1]
# The next account of the same mnemonic.
SECOND_SIGNER = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"
SECOND_SIGNER_KEY = "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a"
SIGNERS = {SIGNER: SIGNER_KEY, SECOND_SIGNER: SECOND_SIGNER_KEY}


def chains_toml(
    folder: Path, *urls: str, chain_id: int = 31337, chain: str = "", connection: str = "", signers: int = 1
) -> Path:
    """A chains file for one development chain connected to itself; `chain` and `connection` add lines to its tables."""
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


def reconfigure(settings: Any, old: str, new: str) -> None:
    text = settings.CHAINS_FILE.read_text()
    assert old in text
    settings.CHAINS_FILE.write_text(text.replace(old, new))
    forget_chains()


def asking(
    blocks: Mapping[str, Any], *, fee: int | str = 0, source: int = 31337, destination: int = 31337
) -> dict[str, Any]:
    """Return the body of a batch that asks for these blocks of a source chain, by selector."""
    return {"destinationChainId": str(destination), "fee": str(fee), "data": {str(source): blocks}}


def balances(numbers: Iterable[int], account: str = ALICE) -> dict[str, Any]:
    """Return what asks for the account's balance at blocks of these numbers."""
    return {f"block:{number}": {"accounts": {account: {"props": ["BALANCE"]}}} for number in numbers}


def request(
    *accounts: str, block: int, props: list[str] | None = None, fee: int = 0, chain_id: int = 31337
) -> dict[str, Any]:
    """The simplest request (docs/specification.md, "Batch query"), for these accounts."""
    entry = {"props": props or ["BALANCE"], "slots": []}
    blocks = {f"block:{block}": {"accounts": dict.fromkeys(accounts, entry)}}
    return asking(blocks, fee=fee, source=chain_id, destination=chain_id)


def a_key(address: str = ALICE, name: str = "default") -> ApiKey:
    return keys.issue(User.objects.for_address(address), name)


def secret_of(key: ApiKey) -> str:
    secret = keys.reveal(key)
    assert secret is not None
    return secret


def header(key: ApiKey) -> dict[str, str]:
    """The request header with the key."""
    return {"api-key": secret_of(key)}


def submit(key: ApiKey, body: dict[str, Any]) -> Batch:
    raw = json.dumps(body).encode()
    return submission.store(batch_request.parse(raw, get_chains(), max_queries=10_000), raw, key)


def work() -> None:
    """Time passes until everything that will be due is, and a worker does it once. What nobody made due is not done."""
    for model in (Signer, Batch, Block):
        model.objects.filter(due_at__gt=timezone.now()).update(due_at=timezone.now())
        # Asked for anew each time, as accepting a batch makes its blocks due; and not for nothing, as that takes long.
        if model.objects.filter(due_at__isnull=False).exists():
            for task in [task for task in due() if task.kind == model.__name__.lower()]:
                task()


def work_until_done(batch: Batch, chain: DevChain | None = None, rounds: int = 10) -> Batch:
    """Work until the batch has ended; mine a block between the rounds where `chain` doesn't mine by itself."""
    for _ in range(rounds):
        work()
        batch.refresh_from_db()
        if batch.status in {BatchStatus.DONE, BatchStatus.REJECTED}:
            return batch
        if chain:
            chain.mine()
    raise AssertionError(f"{batch.pk} is still {batch.status} after {rounds} rounds: {waiting()}")


def expire_leases() -> None:
    """Let the leases of a worker that was killed run out, as time passes."""
    for model in (Batch, Block, Signer):
        model.objects.exclude(leased_until=None).update(leased_until=timezone.now() - timedelta(seconds=1))


def waiting() -> list[str]:
    """Return what batches and blocks say they wait for."""
    said = [*Batch.objects.values_list("waiting_for", flat=True), *Block.objects.values_list("waiting_for", flat=True)]
    return [sentence for sentence in said if sentence]


def work_side_by_side(kind: str) -> None:
    """A worker does at once all that is or will be due of one kind."""
    rows = {"batch": Batch.objects.all(), "block": Block.objects.all(), "signer": Signer.objects.all()}[kind]
    rows.filter(due_at__gt=timezone.now()).update(due_at=timezone.now())
    tasks = [task for task in due() if task.kind == kind]
    for outcome in together.run(tasks, may_wait=lambda: True):
        if isinstance(outcome, Raised):
            raise outcome.error


def work_once() -> None:
    """A worker does once all that is or will be due, side by side."""
    for kind in ("signer", "batch", "block"):
        work_side_by_side(kind)


def fresh(batch: Batch) -> Batch:
    batch.refresh_from_db()
    return batch


def observe() -> None:
    """Time passes until each chain is due, and a worker observes it."""
    chain_checks.wake(everyone=True)
    chain_checks.observe_what_is_due()


def accept_all() -> None:
    """A worker accepts or rejects what is due, and proves nothing."""
    for task in [task for task in due() if task.kind == "batch"]:
        task()
