"""Deploy a facts registry on a new chain in little time.

In each process the service deploys the registries of a configuration once. For later chains the same transactions are
sent again, and the same rows are stored, as if the service had deployed the registries there.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db.models import Model
from django.utils import timezone
from eth_abi.abi import encode
from eth_utils.address import to_checksum_address

from chains.contract_artifacts import NO_CONTRACT, earlier_registry
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from proving.models import FactsRegistry, SignedTransaction, Signer, Transaction

_MINED_SECONDS = 20
# Models of the rows that a deployment stores. Each refers only to models before it.
_MODELS: Sequence[type[Model]] = (Signer, FactsRegistry, Transaction, SignedTransaction)


@dataclass(frozen=True)
class _Deployment:
    at: datetime
    rows: Sequence[Model]

    def repeat(self, chain: DevChain) -> None:
        receipts = {row.hash: _mine(chain, row) for row in self.rows if isinstance(row, SignedTransaction)}
        passed = timezone.now() - self.at
        stored: dict[tuple[type[Model], Any], Any] = {}
        for row in self.rows:
            values = dict(_values(row, passed))
            if isinstance(row, Transaction):
                receipt = receipts[row.hash]
                values |= {"block_hash": receipt["blockHash"], "block_number": int(receipt["blockNumber"], 16)}
            for field in type(row)._meta.concrete_fields:
                if field.related_model and (before := values[field.attname]) is not None:
                    values[field.attname] = stored[field.related_model, before]
            stored[type(row), row.pk] = type(row)._default_manager.create(**values).pk


def _mine(chain: DevChain, version: SignedTransaction) -> dict[str, Any]:
    """Send the transaction, and wait for its receipt. The node mines soon after its answer."""
    sent = chain.rpc("eth_sendRawTransaction", "0x" + bytes(version.raw).hex())
    deadline = time.monotonic() + _MINED_SECONDS
    while (receipt := chain.rpc("eth_getTransactionReceipt", sent)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert receipt["status"] == "0x1"
    return dict(receipt)


def _values(row: Model, passed: timedelta) -> Iterator[tuple[str, Any]]:
    """Yield the row's values by attribute. Times are moved by `passed`."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if not field.primary_key:
            yield field.attname, value + passed if isinstance(value, datetime) else value


def deploy(destination: int = 31337, source: int = 31337, *options: str) -> FactsRegistry:
    """Run `deploy_registry`. Return the registry in use. Raise `CommandError` if the command fails."""
    call_command("deploy_registry", str(destination), str(source), *options, stdout=StringIO(), stderr=StringIO())
    return FactsRegistry.in_use.get(destination_chain_id=destination, source_chain_id=source)


def use_earlier_registry(chain: DevChain) -> FactsRegistry:
    """Let a registry of version 0.3.0 take the place of the connection's, which may be used and replaced."""
    row = FactsRegistry.in_use.get()
    arguments = [row.source_chain_id, row.block_hash_source, row.history_window, NO_CONTRACT]
    code = earlier_registry().bytecode + encode(["uint256", "address", "uint256", "address"], arguments)
    sent = {"from": ACCOUNTS[1][0], "data": "0x" + code.hex(), "gas": hex(10**7)}
    row.address = to_checksum_address(chain.rpc("eth_sendTransactionSync", sent)["contractAddress"])
    row.save()
    forget_chains()
    return row


# Deployments by the number of the chain's newest block, the chains file without URLs, and the source chains.
_deployments: dict[tuple[int, str, Sequence[int]], _Deployment] = {}


def deploy_on(chain: DevChain, *sources: int) -> None:
    """Deploy the registries for facts of these chains on the chain, with the settings' chains file. Without `sources`,
    deploy that for its own facts.

    The database must have no deployment yet. The chain must mine a block for each transaction.
    """
    sources = sources or (chain.chain_id,)
    key = chain.head(), re.sub(r"http://127\.0\.0\.1:\d+", "", settings.CHAINS_FILE.read_text()), sources
    if known := _deployments.get(key):
        known.repeat(chain)
        return
    for source in sources:
        deploy(chain.chain_id, source)
    _deployments[key] = _Deployment(
        timezone.now(), [row for model in _MODELS for row in model._default_manager.order_by("pk")]
    )
