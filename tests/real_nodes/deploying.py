"""Deploy on a chain whose blocks are mined on request, or for the facts of such a chain."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection

from devnet.devchain import DevChain
from devnet.execution_client import ExecutionClient
from proving.models import FactsRegistry
from tests import service
from tests.attesting.process import AttesterProcess
from tests.deployed import deploy


def deployed_on(chain_id: int, mine: Callable[[], None]) -> FactsRegistry:
    """Deploy the chain's registry for its own facts, and return it."""
    with mining(mine):
        return deploy(chain_id, chain_id)


@contextmanager
def mining(mine: Callable[[], None]) -> Iterator[None]:
    """Call `mine` after every 20 database statements."""
    statements = itertools.count(1)

    def pass_time(execute: Any, *more: Any) -> Any:
        if next(statements) % 20 == 0:
            mine()
        return execute(*more)

    with connection.execute_wrapper(pass_time):
        yield


def deployed_for(
    node: ExecutionClient | DevChain,
    chain: DevChain | ExecutionClient,
    attester: AttesterProcess,
    settings: Any,
    folder: Path,
) -> FactsRegistry:
    """Configure the service on `chain` for the facts of `node`, which an attester vouches for. Return the registry."""
    trust = service.attested_by({attester.address: attester.url}, 1)
    lines = "test_network = true\nblock_seconds = 1"
    tables = service.source_tables(
        node.chain_id, "Another client", node.url, trust, chain=lines, destination=chain.chain_id
    )
    settings.CHAINS_FILE = service.chains_toml(folder, chain.url, chain_id=chain.chain_id)
    settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + tables)
    return deploy(chain.chain_id, node.chain_id)
