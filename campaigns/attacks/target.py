"""The attacked service: real processes on this machine, and a development chain."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.client import status, submit, take_api_key
from demo.installation import CHAIN_ID, CHAINS_TOML, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port

_SIGNER_KEY = ACCOUNTS[3][1]


@dataclass(frozen=True)
class Target:
    service: Service
    chain: DevChain

    @property
    def url(self) -> str:
        return self.service.base_url

    def key(self, user: int = 0) -> str:
        """Return an API key of one of the development chain's accounts."""
        address, private_key = ACCOUNTS[user]
        return take_api_key(self.url, address, private_key, CHAIN_ID)

    def seconds_to_done(self, key: str, body: dict[str, Any], most: float) -> float:
        """Submit a batch. Return the seconds until it is DONE, or a number above `most`. Raises `ClientError`."""
        began = time.monotonic()
        batch = submit(self.url, key, body)
        while status(self.url, key, batch) != "DONE" and time.monotonic() - began <= most:
            time.sleep(0.2)
        return time.monotonic() - began


@contextmanager
def target(
    chains_toml: str = CHAINS_TOML,
    *,
    others: Sequence[int] = (),
    arguments: Sequence[str] = (),
    prepare: Callable[[DevChain], None] = lambda _: None,
    url_of: Callable[[DevChain], str] = lambda chain: chain.url,
    **environment: str,
) -> Iterator[Target]:
    """Yield a healthy service with its registries deployed.

    `chains_toml` has `%s` for the node's URL. `others` are more chains, each connected to itself. `arguments` are
    passed to anvil. `prepare` changes the chain before the service first connects to it, at `url_of` it. An
    address's share is unlimited, because attackers and other users have the same address.
    """
    environment = {"PROCESSOR_PERCENT": "1000"} | environment
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, extra_args=arguments))
        prepare(chain)
        service = Service(
            running, folder / "state", chains_toml % url_of(chain), _SIGNER_KEY, free_port(), **environment
        )
        for chain_id in (CHAIN_ID, *others):
            service.deploy_registry(chain_id, chain_id)
        service.serve()
        yield Target(service, chain)
