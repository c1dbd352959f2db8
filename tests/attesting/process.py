"""Run attesters as their operators do: `manage.py run_attester`, each with a folder of its own."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data

from demo.installation import health
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from devnet.guarded_process import GuardedProcess

ALICE, BOB, CHARLIE = (Account.from_key(key) for _, key in ACCOUNTS[:3])
CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
READY_SECONDS = 90
# EIP-712 types by the name of the message.
SIGNED = {
    "BlockHash": {"sourceChainId": "uint256", "blockNumber": "uint256", "blockHash": "bytes32"},
    "AttesterSet": {"attesters": "address[]", "threshold": "uint256", "nonce": "uint256"},
}


class AttesterProcess(NamedTuple):
    address: str
    url: str


def message(kind: str, destination: int, contract: str, *values: Any) -> SignableMessage:
    """Return the EIP-712 message, made without the service's code."""
    types = [{"name": name, "type": of_type} for name, of_type in SIGNED[kind].items()]
    name = "Batch Query Service Attestation"
    domain = {"name": name, "version": "1", "chainId": destination, "verifyingContract": contract}
    return encode_typed_data(domain, {kind: types}, dict(zip(SIGNED[kind], values, strict=True)))


def signature(key: str, *arguments: Any) -> str:
    """Return a signature of the `message` with these arguments."""
    return "0x" + bytes(Account.from_key(key).sign_message(message(*arguments)).signature).hex()


def chains_file(folder: Path, *urls: str, key: str = ACCOUNTS[0][1], chain_id: int = 31337, chain: str = "") -> Path:
    """Write an attester's chains file for one development chain. `chain` adds lines to the chain's table."""
    folder.mkdir(exist_ok=True)
    (folder / "attester.key").write_text(key)
    path = folder / "chains.toml"
    path.write_text(f"""
[attester]
key_file = "attester.key"

[[chains]]
id = {chain_id}
name = "Development chain"
rpc_urls = {json.dumps(urls)}
{chain}
""")
    return path


def environment(folder: Path) -> Mapping[str, str]:
    return {**os.environ, "STATE_DIR": str(folder / "state"), "CHAINS_FILE": str(folder / "chains.toml")}


@dataclass
class Running:
    process: GuardedProcess
    account_address: str
    url: str
    lines: list[str]
    """The printed lines. They are complete once the context has ended."""

    @property
    def attester(self) -> AttesterProcess:
        return AttesterProcess(address=self.account_address, url=self.url)


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Run an attester on a free port. `folder` has its chains file."""
    command = [sys.executable, str(PROJECT / "manage.py"), "run_attester", "--bind", "127.0.0.1:0"]
    process = GuardedProcess(command, env=environment(folder), stdout=subprocess.PIPE)
    lines: list[str] = []
    listening = threading.Event()

    def read() -> None:
        for line in process.output:
            lines.append(line.decode())
            listening.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert listening.wait(READY_SECONDS), "the attester says nothing"
        match = re.fullmatch(r"Attester (0x\w{40}) listens on (http://127\.0\.0\.1:\d+)\n", lines[0])
        assert match, lines
        # The attester prints the line before its web server has started.
        deadline = time.monotonic() + READY_SECONDS
        while not health(match[2]):
            assert time.monotonic() < deadline, lines
            assert not process.has_ended(), lines
            time.sleep(0.1)
        yield Running(process, match[1], match[2], lines)
    finally:
        process.stop()
        reader.join(READY_SECONDS)
        process.output.close()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an attester's command until it ends."""
    command = [sys.executable, str(PROJECT / "manage.py"), *arguments]
    return subprocess.run(
        command, env=environment(folder), capture_output=True, text=True, timeout=READY_SECONDS, check=False
    )


def question(number: int, **changed: str) -> dict[str, str]:
    """Return the body of a request to attest a block of the development chain."""
    body = {"sourceChainId": "31337", "blockNumber": str(number), "destinationChainId": "10"}
    return body | {"verifyingContract": CONTRACT} | changed


def signer_of(body: dict[str, str], answer: Any) -> str:
    """Return the address that signed the block hash in the answer."""
    values = int(body["sourceChainId"]), int(body["blockNumber"]), bytes.fromhex(answer["blockHash"][2:])
    signed = message("BlockHash", int(body["destinationChainId"]), body["verifyingContract"], *values)
    return str(Account.recover_message(signed, signature=answer["signature"]))


def block_hash(chain: DevChain, number: int) -> bytes:
    return bytes.fromhex(chain.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])
