"""The reference of `make bench`: a plain script by web3.py that proves accounts, one each at a block of its own.

It checks no answer of the node but the receipts, and stores nothing. The parent process sends a line of JSON with block
numbers, and is answered with a line: the processor seconds that this took.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import rlp
from eth_account import Account
from eth_utils.address import to_checksum_address
from web3 import Web3

from campaigns.benchmarks.measured import Measured
from chains.tries import packed
from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS, PROJECT

_ADDRESS, _KEY = ACCOUNTS[2]
_FACTS = 100
_GAS, _WEI = 500_000, 10**10
_HEADER = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom", "difficulty"),
    *("number", "gasLimit", "gasUsed", "timestamp", "extraData", "mixHash", "nonce", "baseFeePerGas"),
    *("withdrawalsRoot", "blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot", "requestsHash"),
)


class Script:
    """The running script. It proves at the chain of a service, by a signer of its own."""

    def __init__(self, running: ExitStack, service: Measured) -> None:
        self._service = service
        command = [sys.executable, "-m", __name__, service.chain.url, service.registry]
        self._process = running.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
        )
        self.seconds_a_fact()  # the first questions take longer

    def seconds_a_fact(self) -> float:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(self._service.new_blocks(_FACTS)), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline()) / _FACTS


def prove(eth: Any, registry: str, blocks: list[int]) -> None:
    """Prove an account at each block. web3's types of `get_proof` are wrong, so `eth` has none."""
    nonce = eth.get_transaction_count(to_checksum_address(_ADDRESS))
    sent = []
    for place, number in enumerate(blocks):
        address = to_checksum_address(f"0x{2**100 + number:040x}")
        block = eth.get_block(number)
        proof = eth.get_proof(address, [], number)
        fields = [bytes.fromhex(block["miner"][2:]) if name == "miner" else block.get(name) for name in _HEADER]
        account = packed.AccountToProve(bytes.fromhex(address[2:]), packed.NONCE_AND_BALANCE, proof["accountProof"])
        data = packed.encode(rlp.encode([each for each in fields if each is not None]), block["stateRoot"], [account])
        fees = {"maxFeePerGas": _WEI, "maxPriorityFeePerGas": 1, "gas": _GAS, "value": 0}
        transaction = {"to": registry, "data": data, "nonce": nonce + place, "chainId": CHAIN_ID, **fees}
        sent.append(eth.send_raw_transaction(Account.sign_transaction(transaction, _KEY).raw_transaction))
    for transaction_hash in sent:
        receipt = eth.wait_for_transaction_receipt(transaction_hash, timeout=600, poll_latency=1)
        assert receipt["status"], "The registry has refused a proof of the script."


def main() -> None:
    url, registry = sys.argv[1:]
    web3 = Web3(Web3.HTTPProvider(url))
    for line in sys.stdin:
        began = time.process_time()
        prove(web3.eth, registry, json.loads(line))
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
