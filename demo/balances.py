"""What each demo shows from the sign-in on: a batch for balances, its steps, and what the chain then says."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from demo import client
from demo.display import Display
from demo.installation import Service, write_private
from devnet.devchain import ACCOUNTS, DevChain

# One account signs in, another one pays for the transactions; its balance, no round number, is what is proven.
WALLET_ADDRESS, WALLET_KEY = ACCOUNTS[0]
SIGNER_ADDRESS, SIGNER_KEY = ACCOUNTS[1]


class Node(Protocol):
    """A chain's node."""

    chain_id: int
    url: str

    def head(self) -> int: ...


@dataclass(frozen=True)
class Source:
    """A source chain, and the facts registry for it on the destination."""

    chain: Node
    registry: str
    block: int | None = None
    """The block that is asked for, and its time with it. None: the newest, without its time."""


def prove(
    service: Service,
    destination: DevChain,
    sources: Sequence[Source],
    seconds: float,
    *,
    serves_on: bool,
    is_last: bool = True,
    then: Callable[[], bool] = lambda: True,
    **variables: str,
) -> bool:
    """Prove the signer's balance on each source in one batch, and read it. Returns whether each one is right.

    If the service `serves_on` afterwards, its addresses are printed behind what `is_last`, else none. `then` shows more
    before that, and returns whether it is right. `variables` come to those that the examples of the documentation use.

    Raises `ClientError` when the batch is not DONE in time.
    """
    print("Signing in with a wallet and taking its API key ...", flush=True)
    api_key = client.take_api_key(service.base_url, WALLET_ADDRESS, WALLET_KEY, destination.chain_id)

    blocks = [source.chain.head() if source.block is None else source.block for source in sources]
    where = [f"block {block} of chain {source.chain.chain_id}" for source, block in zip(sources, blocks, strict=True)]
    print(f"Asking for the balance of {SIGNER_ADDRESS} at {' and '.join(where)} ...", flush=True)
    accounts = {SIGNER_ADDRESS: {"props": ["BALANCE"], "slots": []}}
    data = {
        str(source.chain.chain_id): {
            f"block:{block}": {"accounts": accounts} | ({} if source.block is None else {"header": ["TIMESTAMP"]})
        }
        for source, block in zip(sources, blocks, strict=True)
    }
    body = {"destinationChainId": str(destination.chain_id), "fee": "0", "data": data}
    internal_id = client.submit(service.base_url, api_key, body)
    page = f"{service.base_url}/explorer/query/{internal_id}"
    if serves_on:
        print(f"Its page is {page}")
    print(flush=True)
    with Display() as display:
        client.follow(service.base_url, api_key, internal_id, display.show, seconds)

    env = {
        "BASE_URL": service.base_url,
        "API_KEY": api_key,
        "RPC_URL": destination.url,
        "CHAIN_ID": str(destination.chain_id),
        "FACTS_REGISTRY": sources[0].registry,
        "QUERY_ID": internal_id,
        "BQS_URL": service.base_url,
        "BQS_API_KEY": api_key,
        "BQS_RPC_URL": destination.url,
        **variables,
    }
    are_right = [show(destination, source, block) for source, block in zip(sources, blocks, strict=True)]
    are_right.append(read_by_bqs(internal_id, env))
    are_right.append(then())
    if serves_on and is_last:
        env_file = service.folder / "env"
        write_private(env_file, "".join(f"{name}={value}\n" for name, value in env.items()))
        print(f"\nExplorer  {page}")
        print(f"Ask here  {service.base_url}/new-batch  (sign in as a development account; it takes no wallet)")
        print(f"API docs  {service.base_url}/api/docs")
        print(f"For the documentation's examples:  set -a; . {os.path.relpath(env_file)}; set +a", flush=True)
    elif is_last:
        print(
            "\nThe chain and the service end here. Without ONCE=1 they go on, for the explorer and the API.", flush=True
        )
    return all(are_right)


def show(destination: Node, source: Source, block: int) -> bool:
    """Print the balance that the facts registry returns, and the block's time where that was asked for too.

    Returns whether the source chain says the same.
    """
    word = client.account_field(destination.url, source.registry, SIGNER_ADDRESS, block, client.BALANCE)
    balance = int.from_bytes(word)
    expected = int(client.rpc(source.chain.url, "eth_getBalance", SIGNER_ADDRESS, hex(block)), 16)
    is_right = balance == expected
    said = f"eth_getBalance on chain {source.chain.chain_id}"
    print(f"\nChain {source.chain.chain_id}, block {block}, as chain {destination.chain_id} knows it:")
    print(f"  call     accountField({SIGNER_ADDRESS}, {block}, BALANCE) on {source.registry}")
    print(f"  word     0x{word.hex()}")
    print(f"  decimal  {balance} wei")
    print(f"  ETH      {balance // 10**18}.{balance % 10**18:018d}")
    print(f"  equal to {said} at that block" if is_right else f"  WRONG: {said} says {expected}", flush=True)
    return is_right and (source.block is None or _show_time(destination, source, block))


def _show_time(destination: Node, source: Source, block: int) -> bool:
    time = int.from_bytes(client.header_field(destination.url, source.registry, block, client.TIMESTAMP))
    told = client.rpc(source.chain.url, "eth_getBlockByNumber", hex(block), False)
    is_right = time == int(told["timestamp"], 16)
    said = f"eth_getBlockByNumber on chain {source.chain.chain_id}"
    print(f"\n  call     headerField({block}, TIMESTAMP) on {source.registry}")
    print(f"  decimal  {time}, which is {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC")
    print(f"  equal to {said}" if is_right else f"  WRONG: {said} says {int(told['timestamp'], 16)}", flush=True)
    return is_right


def read_by_bqs(internal_id: str, env: Mapping[str, str]) -> bool:
    """Print what the client's command line reads of the batch's facts, from the chain. Returns whether it could."""
    # BQS_RPC_URL tells it to ask the chain, and not the service.
    command = [str(Path(sys.executable).with_name("bqs")), "read", internal_id]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    print(f"\nThe same, by the client: bqs read {internal_id}")
    print(textwrap.indent(done.stdout + done.stderr, "  "), end="", flush=True)
    return done.returncode == 0
