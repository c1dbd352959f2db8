"""A service with two source chains, and the sources of trust in the second."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from eth_account import Account

from devnet.devchain import DevChain
from devnet.execution_client import ExecutionClient
from tests import deployed, http_server, service
from tests.attesting import process
from tests.proving.chain_state import AccountField, field_on_chain

HERE, THERE = 31337, 31338
KEYS = [f"0x{number:064x}" for number in (1001, 1002, 1003)]


@contextmanager
def attesting(folder: Path, chain: DevChain | ExecutionClient, key: str) -> Iterator[process.AttesterProcess]:
    process.chains_file(folder, chain.url, key=key, chain_id=chain.chain_id)
    with process.running(folder) as attester:
        yield attester.attester


@contextmanager
def liar(key: str, block_hash: bytes) -> Iterator[process.AttesterProcess]:
    """Yield an attester that signs the same false hash for every block, with its real key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            values = int(body["sourceChainId"]), int(body["blockNumber"]), block_hash
            contract = int(body["destinationChainId"]), body["verifyingContract"]
            answer = {
                "blockHash": "0x" + block_hash.hex(),
                "signature": process.signature(key, "BlockHash", *contract, *values),
            }
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    with http_server.serving(Handler) as url:
        yield process.AttesterProcess(address=Account.from_key(key).address, url=url)


_FAST = "test_network = true\nblock_seconds = 1"


def grow(chain: DevChain, blocks: int) -> None:
    """Mine blocks a second apart. Each gives money to Charlie."""
    chain.rpc("anvil_setBlockTimestampInterval", 1)
    for _ in range(blocks):
        chain.rpc("eth_sendTransactionSync", {"from": service.BOB, "to": service.CHARLIE, "value": "0x1"})


def connect(
    settings,
    folder: Path,
    here: DevChain,
    url: str,
    *,
    attesters: Sequence[process.AttesterProcess] = (),
    threshold: int = 2,
    outbox: str = "",
    parent: DevChain | None = None,
    below: tuple[DevChain, str] | None = None,
    anchor_state_registry: str = "",
    block_hash_source: str = "op-stack",
    of_there: str = "",
    of_here: str = "",
    more: str = "",
) -> None:
    """Configure the service on `here` with both chains and `parent` as sources, and deploy the registries.

    An L1Block tells of `parent`. If `parent` is itself a rollup, the L1Block tells of the chain `below` it, which has
    the Outbox of `parent`. `of_there` adds lines to the other chain's table, `more` to its connection, and `of_here` to
    the connection of `here` with itself.
    """
    path = service.chains_toml(folder, here.url, connection=of_here)
    source = "attested" if attesters else "arbitrum-slot" if parent else "arbitrum" if outbox else block_hash_source
    if anchor_state_registry:
        source = "op-stack-games"
    lines = [
        f'block_hash_source = "{source}"',
        "window = 20",
        more,
        *([f"threshold = {threshold}"] if attesters else []),
    ]
    contracts = {"outbox": outbox, "anchor_state_registry": anchor_state_registry}
    lines += [f'{name} = "{address}"' for name, address in contracts.items() if address]
    text = service.source_tables(THERE, "The other chain", url, "\n".join(lines), chain=f"{_FAST}\n{of_there}")
    for attester in attesters:
        text += f'[[connections.attesters]]\naddress = "{attester.address}"\nurl = "{attester.url}"\n'
    if parent:
        text = text.replace("outbox =", f"parent = {parent.chain_id}\noutbox =")
        over = f'"arbitrum-slot"\nparent = {below[0].chain_id}\noutbox = "{below[1]}"' if below else '"op-stack"'
        text += _of_parent("The parent chain", parent, over)
        text += _of_parent("The chain below", below[0], '"op-stack"') if below else ""
    path.write_text(path.read_text() + text)
    settings.CHAINS_FILE = path
    above = [chain.chain_id for chain in (below and below[0], parent) if chain]
    deployed.deploy_on(here, HERE, *above, THERE)


def _of_parent(name: str, chain: DevChain, block_hash_source: str) -> str:
    connection = f"window = 20\nblock_hash_source = {block_hash_source}"
    return service.source_tables(chain.chain_id, name, chain.url, connection, chain=_FAST)


def of_chains(*, there: Sequence[int] = (), here: Sequence[int] = (), address: str = service.CHARLIE) -> dict[str, Any]:
    """Return the body of a batch about the account's balance at blocks of both chains."""
    data = {str(chain): service.balances(blocks, address) for chain, blocks in ((THERE, there), (HERE, here)) if blocks}
    return service.asking({}) | {"data": data}


def balance_proven(here: DevChain, block: int, *, source: int = THERE) -> int:
    return field_on_chain(here, service.CHARLIE, block, AccountField.BALANCE, source=source)
