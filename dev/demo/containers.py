"""Prove a balance by the service in containers (deploy/demo.yml), and read it from the registry."""

import sys
from dataclasses import dataclass

import requests

from demo import client
from demo.client import ClientError
from demo.command import say, show_balance, steps_printer, use_no_proxy
from demo.installation import CHAIN_ID, PAYER_ADDRESS, WALLET_ADDRESS, WALLET_KEY

# Maximum seconds for the batch. Four containers have just started.
DONE_SECONDS = 120


@dataclass
class ChainInContainer:
    url: str
    chain_id: int = CHAIN_ID

    def head(self) -> int:
        return int(client.rpc(self.url, "eth_blockNumber"), 16)


def main(url: str, rpc_url: str) -> int:
    """Return the exit code: 0 only if the registry's balance is equal to the chain's."""
    use_no_proxy()
    chain = ChainInContainer(rpc_url)
    try:
        api_key = client.take_api_key(url, WALLET_ADDRESS, WALLET_KEY, CHAIN_ID)
        block = chain.head()
        say(f"Asking for the balance of {PAYER_ADDRESS} at block {block}")
        blocks = {f"block:{block}": {"accounts": {PAYER_ADDRESS: {"props": ["BALANCE"], "slots": []}}}}
        body = {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": {str(CHAIN_ID): blocks}}
        internal_id = client.submit(url, api_key, body)
        client.follow(url, api_key, internal_id, steps_printer(), DONE_SECONDS)
        is_right = show_balance(chain, client.registry(url, CHAIN_ID, CHAIN_ID), chain, block)
    except (ClientError, requests.RequestException) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\nIts page, until Ctrl-C: {url}/explorer/query/{internal_id}", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
