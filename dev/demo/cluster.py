"""Run the demo on several processes: PostgreSQL, Redis, two web servers and three Celery workers.

Each process could run on a machine of its own. Many batches are submitted, one worker is killed meanwhile, and every
value is read from the chain. State is in `.demo-cluster/`, which is emptied at each start.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from eth_account import Account
from eth_utils.crypto import keccak

from demo import client, command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_ADDRESS, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

WORKERS = 3
# The service lets a user submit 60 batches a minute.
WALLETS, PER_WALLET = 4, 50
# Seconds until another worker takes over the lanes of a killed one.
LEASE_SECONDS = 5
# The account whose balance is proven. It receives wei in each block, so its balance differs at each block.
RECEIVER = f"0x{0xBA7C:040x}"
_EVENTS = ("HeaderAccumulated(uint256,bytes32)", "AccountProven(address,uint256,uint8)")


class Cluster(Service):
    """Two web servers, and Celery workers. They share only the database and the broker."""

    def __init__(
        self, running: ExitStack, folder: Path, chains_toml: str, key: str, port: int, **variables: str
    ) -> None:
        super().__init__(running, folder, chains_toml, key, port, **variables)
        self._second_port = free_port()
        self.base_urls = (self.base_url, f"http://127.0.0.1:{self._second_port}")

    def start_web(self) -> None:
        self.start_web_at(self.port, "web-1")
        self.start_web_at(self._second_port, "web-2")

    def start_worker(self, name: str = "worker-1", *options: str, **variables: str) -> None:
        celery = (sys.executable, "-m", "celery", "-A", "proving.celery_app", "-q", "worker", "-n", f"{name}@%h")
        self.start(name, *celery, "--without-gossip", "--without-mingle", "--without-heartbeat", *options, **variables)


def run(demo: Demo) -> bool:
    """Start all processes, submit the batches, kill a worker meanwhile, and check every value."""
    command.say(f"Starting a development chain, PostgreSQL, Redis, two web servers and {WORKERS} Celery workers")
    chain = demo.chain()
    postgres, redis = demo.running.enter_context(Postgres()), demo.running.enter_context(Redis())
    variables = {"DATABASE_URL": postgres.url(), "BROKER_URL": redis.url(), "LEASE_SECONDS": str(LEASE_SECONDS)}
    (registry,) = demo.serve(CHAINS_TOML % chain.url, (CHAIN_ID, CHAIN_ID), kind=Cluster, **variables)
    assert isinstance(demo.service, Cluster)
    for number in range(2, WORKERS + 1):
        demo.service.start_worker(f"worker-{number}")
    sent_before = _sent(chain)
    blocks = _blocks_with_transfers(chain, demo.options.batches)

    command.say(f"Signing in with {WALLETS} wallets, and submitting {len(blocks)} batches to both web servers in turn")
    wallets = [Account.create() for _ in range(WALLETS)]
    urls = demo.service.base_urls
    keys = [client.take_api_key(urls[0], wallet.address, wallet.key.to_0x_hex(), CHAIN_ID) for wallet in wallets]
    batches: dict[str, str] = {}
    for number, block in enumerate(blocks):
        if number == len(blocks) // 2:
            done = wait_until_done(demo, batches, len(blocks) // 10)
            demo.service.kill("worker-2")
            print(f"kill -9 of worker 2, with {number - done} batches under way", flush=True)
        key = keys[number // PER_WALLET % WALLETS]
        accounts = {RECEIVER: {"props": ["BALANCE"], "slots": []}}
        data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts}}}
        body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}
        batches[client.submit(urls[number % 2], key, body)] = key
    wait_until_done(demo, batches, len(batches))

    command.say("Reading every value from the facts registry, and the same from the chain")
    # The batches name the transactions that proved them. If the chain has more transactions, something was proven
    # twice.
    named = set[str]().union(*(client.transactions(urls[0], internal_id) for internal_id in batches))
    is_right = is_proven_once(chain, registry, blocks, sent=_sent(chain) - sent_before, named=len(named))
    if not demo.options.once:
        print(f"\nExplorer  {urls[0]}/explorer/query/{next(iter(batches))}\nHealth    {urls[0]}/healthz", flush=True)
    return is_right


def wait_until_done(demo: Demo, batches: dict[str, str], count: int) -> int:
    """Wait until `count` of the batches are DONE.

    `batches` has their API keys by id. Raises `ClientError` at a time-out.
    """
    began, done = time.monotonic(), set[str]()
    while len(done) < count:
        demo.service.require_running()
        for internal_id in batches.keys() - done:
            if client.status(demo.service.base_url, batches[internal_id], internal_id) == "DONE":
                done.add(internal_id)
        print(f"  {time.monotonic() - began:5.1f} s  {len(done):3} of {len(batches)} DONE", flush=True)
        if time.monotonic() - began > demo.options.done_seconds:
            seconds = demo.options.done_seconds
            raise client.ClientError(f"Only {len(done)} of {len(batches)} batches are DONE after {seconds:g} s.")
        time.sleep(1)
    return len(done)


def is_proven_once(chain: DevChain, registry: str, blocks: Sequence[int], *, sent: int, named: int) -> bool:
    """Return whether every value is right, and nothing was proven or paid for twice. Print each result."""
    equal = sum(
        int.from_bytes(client.account_field(chain.url, registry, RECEIVER, block, client.BALANCE))
        == int(client.rpc(chain.url, "eth_getBalance", RECEIVER, hex(block)), 16)
        for block in blocks
    )
    topics = ["0x" + keccak(text=event).hex() for event in _EVENTS]
    events = len(client.rpc(chain.url, "eth_getLogs", {"address": registry, "topics": [topics], "fromBlock": "0x0"}))
    lines = {
        f"values        {len(blocks)} read, {equal} equal to eth_getBalance at their blocks": equal == len(blocks),
        f"transactions  {sent} sent by the signer, {named} named by the batches": sent == named,
        f"proofs        {events} of {len(blocks)} headers and {len(blocks)} accounts": events == 2 * len(blocks),
    }
    for label, is_right in lines.items():
        print(f"  {label}{'' if is_right else '  WRONG'}", flush=True)
    return all(lines.values())


def _blocks_with_transfers(chain: DevChain, count: int) -> list[int]:
    """Mine `count` blocks that each send some wei to the receiver, and return their numbers."""
    blocks = []
    for number in range(1, count + 1):
        transfer = {"from": ACCOUNTS[2][0], "to": RECEIVER, "value": hex(number)}
        sent = chain.rpc("eth_sendTransaction", transfer)
        chain.mine()
        blocks.append(int(chain.rpc("eth_getTransactionReceipt", sent)["blockNumber"], 16))
    return blocks


def _sent(chain: DevChain) -> int:
    """Return the number of the signer's transactions on the chain."""
    return int(chain.rpc("eth_getTransactionCount", SIGNER_ADDRESS, "latest"), 16)


if __name__ == "__main__":
    parser = command.parser("make demo-cluster", __doc__, ".demo-cluster")
    parser.add_argument("--batches", type=int, default=WALLETS * PER_WALLET, help="how many to submit (%(default)s)")
    parser.set_defaults(done_seconds=300)
    sys.exit(command.main(parser, run))
