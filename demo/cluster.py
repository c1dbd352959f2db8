"""Runs the demo on several processes as on several machines: PostgreSQL, Redis, two web servers, three Celery workers.

Many batches are submitted, one worker is killed in the middle, and every value is read from the chain. State lives in
`.demo-cluster/`, made anew at each start.
"""

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from eth_account import Account
from eth_utils.crypto import keccak

from demo import balances, client, command
from demo.installation import CHAIN_ID, CHAINS_TOML, Installation, Service
from devnet.devchain import ACCOUNTS, DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

WORKERS = 3
# A user may submit 60 batches a minute.
WALLETS, PER_WALLET = 4, 50
# How soon the rows of a killed worker are taken up.
LEASE_SECONDS = 5
# Whose balance is proven: it receives a little in each block, so that no two values are the same.
RECEIVER = f"0x{0xBA7C:040x}"

_HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
_ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()


class Cluster(Service):
    """Two web servers, and workers by Celery. One database and one broker are all that they share."""

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
        celery = (sys.executable, "-m", "celery", "-A", "proving.worker.celery_app", "-q", "worker", "-n", f"{name}@%h")
        self.start(name, *celery, "--without-gossip", "--without-mingle", "--without-heartbeat", *options, **variables)


@dataclass(frozen=True)
class Submitted:
    """A batch for the receiver's balance at one block."""

    api_key: str
    internal_id: str
    block: int


def run(running: ExitStack, options: argparse.Namespace) -> tuple[bool, Sequence[Installation]]:
    """Start everything, prove all, kill a worker meanwhile, and read every value."""
    print("Starting a development chain with a block every second, PostgreSQL and Redis ...", flush=True)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=options.rpc_port))
    postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())

    print("Deploying the facts registry ...", flush=True)
    variables = {"DATABASE_URL": postgres.url(), "BROKER_URL": redis.url(), "LEASE_SECONDS": str(LEASE_SECONDS)}
    toml = CHAINS_TOML % chain.url
    cluster = Cluster(running, options.state, toml, balances.SIGNER_KEY, options.port, **variables)
    registry = cluster.deploy_registry(CHAIN_ID, CHAIN_ID)
    sent_before = _sent(chain)
    blocks = _blocks_with_transfers(chain, options.batches)

    print(f"Starting two web servers and {WORKERS} Celery workers ...", flush=True)
    cluster.serve()
    for number in range(2, WORKERS + 1):
        cluster.start_worker(f"worker-{number}")

    print(f"Signing in with {WALLETS} wallets and taking their API keys ...", flush=True)
    wallets = [Account.create() for _ in range(WALLETS)]
    keys = [client.take_api_key(cluster.base_url, one.address, one.key.to_0x_hex(), CHAIN_ID) for one in wallets]

    began = time.monotonic()
    print(f"Submitting {len(blocks)} batches, to both web servers in turn ...\n", flush=True)
    half = len(blocks) // 2
    batches = [_submit(cluster, keys, number, block) for number, block in enumerate(blocks[:half])]
    done = _follow(cluster, batches, began, options.done_seconds, until=min(half, len(blocks) // 10))
    cluster.kill("worker-2")
    print(
        f"  {time.monotonic() - began:5.1f} s  kill -9 of worker 2, with {half - len(done)} batches under way",
        flush=True,
    )
    batches += [_submit(cluster, keys, number, block) for number, block in enumerate(blocks[half:], half)]
    print(f"  {time.monotonic() - began:5.1f} s  all {len(batches)} are submitted", flush=True)
    _follow(cluster, batches, began, options.done_seconds, until=len(batches))
    seconds = time.monotonic() - began

    print("\nReading every value from the facts registry, and the same from the chain ...\n", flush=True)
    is_right = _show(cluster, chain, registry, batches, sent=_sent(chain) - sent_before, seconds=seconds)
    if not options.once:
        print(f"\nExplorer  {cluster.base_url}/explorer/query/{batches[0].internal_id}")
        print(f"Health    {cluster.base_url}/healthz", flush=True)
    return is_right, [cluster]


def _blocks_with_transfers(chain: DevChain, count: int) -> list[int]:
    """Mine `count` blocks, in each of which the receiver gets a little, and return their numbers."""
    blocks = []
    for number in range(1, count + 1):
        transfer = {"from": ACCOUNTS[2][0], "to": RECEIVER, "value": hex(number)}
        receipt = chain.rpc("eth_sendTransaction", transfer)
        chain.mine()
        blocks.append(int(chain.rpc("eth_getTransactionReceipt", receipt)["blockNumber"], 16))
    return blocks


def _submit(cluster: Cluster, keys: Sequence[str], number: int, block: int) -> Submitted:
    api_key = keys[number // PER_WALLET % len(keys)]
    accounts = {RECEIVER: {"props": ["BALANCE"], "slots": []}}
    data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts}}}
    body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}
    return Submitted(api_key, client.submit(cluster.base_urls[number % 2], api_key, body), block)


def _follow(
    cluster: Cluster, batches: Sequence[Submitted], began: float, seconds: float, *, until: int
) -> list[Submitted]:
    """Wait until `until` batches are DONE, and return those that are. Raises `ClientError` after `seconds` seconds."""
    done: list[Submitted] = []
    told = 0.0
    urls = itertools.cycle(cluster.base_urls)
    deadline = time.monotonic() + seconds
    while len(done) < until:
        cluster.require_running()
        open_ones = [batch for batch in batches if batch not in done]
        done += [one for one in open_ones if client.status(next(urls), one.api_key, one.internal_id) == "DONE"]
        if len(done) == until or time.monotonic() - told > 1:
            told = time.monotonic()
            print(f"  {told - began:5.1f} s  {len(done):3} of {len(batches)} DONE", flush=True)
        if time.monotonic() > deadline:
            raise client.ClientError(f"Only {len(done)} of {len(batches)} batches are DONE after {seconds:g} s.")
        time.sleep(0.1)
    return done


def _sent(chain: DevChain) -> int:
    """Return how many transactions the signer has in the chain."""
    return int(chain.rpc("eth_getTransactionCount", balances.SIGNER_ADDRESS, "latest"), 16)


def _show(
    cluster: Cluster, chain: DevChain, registry: str, batches: Sequence[Submitted], *, sent: int, seconds: float
) -> bool:
    """Print the results of the batches. Returns whether every value is right and nothing was paid twice."""
    blocks = {batch.block for batch in batches}
    equal = sum(_is_equal(chain, registry, block) for block in blocks)
    # Each batch says by which transactions it was proven. More of them would have proven something again.
    named = set[str]()
    for batch in batches:
        named |= client.transactions(cluster.base_url, batch.internal_id)
    headers, accounts = (_events(chain, registry, topic) for topic in (_HEADER_ACCUMULATED, _ACCOUNT_PROVEN))
    again = sum(times - 1 for times in (headers + accounts).values())
    lines = {
        "batches": (f"{len(batches)} DONE in {seconds:.1f} s", True),
        "values": (f"{len(blocks)} read, {equal} equal to eth_getBalance at their blocks", equal == len(blocks)),
        "transactions": (f"{sent} sent by the signer, {len(named)} named by the batches", sent == len(named)),
        "proofs": (f"{len(headers)} headers and {len(accounts)} accounts, {again} of them proven twice", not again),
    }
    for name, (said, is_right) in lines.items():
        print(f"  {name:13} {said}{'' if is_right else '  WRONG'}", flush=True)
    return all(is_right for _, is_right in lines.values())


def _is_equal(chain: DevChain, registry: str, block: int) -> bool:
    word = client.account_field(chain.url, registry, RECEIVER, block, client.BALANCE)
    return int.from_bytes(word) == int(client.rpc(chain.url, "eth_getBalance", RECEIVER, hex(block)), 16)


def _events(chain: DevChain, registry: str, topic: str) -> Counter[str]:
    """Count how often each thing was proven."""
    logs = chain.rpc("eth_getLogs", {"address": registry, "topics": [topic], "fromBlock": "0x0"})
    return Counter(" ".join(log["topics"]) for log in logs)


if __name__ == "__main__":
    parser = command.parser("make demo-cluster", __doc__, ".demo-cluster")
    parser.add_argument("--batches", type=int, default=WALLETS * PER_WALLET, help="how many to submit (%(default)s)")
    parser.set_defaults(done_seconds=300)
    sys.exit(command.main(parser, run))
