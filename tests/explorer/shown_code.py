"""Programs that pages show for facts, and what they print or return."""

import html
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from devnet.devchain import PROJECT, DevChain
from tests.factories import client_of, until
from tests.service import ALICE

NODE = PROJECT / ".venv" / "bin" / "node"
_COMPILE = """
const solc = require('solc');
const sources = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const input = {language: 'Solidity', sources,
  settings: {outputSelection: {'*': {'*': ['evm.bytecode.object']}}}};
process.stdout.write(solc.compile(JSON.stringify(input)));
"""
_LABEL, _CODE = r"<label for=[^>]*>([^<]*)</label>", r"<pre tabindex=\"0\"><code>([^<]*)</code>"


def of_page(path: str) -> list[dict[str, str]]:
    """Return the programs of each fact of a page by language, in the order of the page."""
    page = client_of(ALICE).get(path, headers={"accept": "text/html"}).text
    tabs = re.findall(r'<fieldset id="tabs-.*?</fieldset>', page, re.DOTALL)
    return [
        dict(zip(re.findall(_LABEL, each), map(html.unescape, re.findall(_CODE, each)), strict=True)) for each in tabs
    ]


def of_block(number: int) -> list[str]:
    """Return the programs in TypeScript of the page with the block's facts, in the order of the facts."""
    return [programs["viem"] for programs in of_page(f"/facts?block={number}")]


def printed(programs: Sequence[str], url: str, folder: Path) -> list[str]:
    """Return what each TypeScript program prints, with a node of the destination chain at `url`."""
    (folder / "node_modules").symlink_to(PROJECT / "node_modules")
    for place, program in enumerate(programs):
        (folder / f"{place}.mts").write_text(program)
    (folder / "all.mts").write_text("\n".join(f'await import("./{place}.mts");' for place in range(len(programs))))
    command, environment = [NODE, folder / "all.mts"], {"RPC_URL": url}
    ran = subprocess.run(command, capture_output=True, check=True, env=environment, text=True)
    return [line.removesuffix("n") for line in ran.stdout.split()]


def printed_by_shell(commands: str, url: str) -> str:
    """Return what commands with `cast` print, without its short form of a large number."""
    tools = f"{PROJECT}/node_modules/.bin:{os.environ['PATH']}"
    environment = {"RPC_URL": url, "PATH": tools}
    ran = subprocess.run(["bash", "-euc", commands], capture_output=True, check=True, env=environment, text=True)
    return re.sub(r" \[.*\]$", "", ran.stdout.strip())


def returned(sources: Mapping[str, str], calls: Mapping[str, tuple[str, str]], chain: DevChain) -> dict[str, str]:
    """Return the words that contracts return, which compile without a warning.

    `calls` has the name and the calldata of the contract in each of the `sources`.
    """
    codes = creation_codes(sources)
    words = {}
    for name, (contract, data) in calls.items():
        sent = chain.rpc(
            "eth_sendTransaction", {"from": ALICE, "data": f"0x{codes[name][contract]}", "gas": hex(1_000_000)}
        )
        until(partial(chain.rpc, "eth_getTransactionReceipt", sent), "a receipt")
        address = chain.rpc("eth_getTransactionReceipt", sent)["contractAddress"]
        words[name] = chain.rpc("eth_call", {"to": address, "data": data}, "latest")
    return words


def creation_codes(sources: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the code of contracts, which compile without a warning, by their files and names."""
    compiled = subprocess.run(
        [NODE, "-e", _COMPILE],
        input=json.dumps({name: {"content": source} for name, source in sources.items()}).encode(),
        capture_output=True,
        cwd=PROJECT,
        check=True,
    )
    output = json.loads(compiled.stdout)
    errors = [error["formattedMessage"] for error in output.get("errors", [])]
    assert not errors, "\n".join(errors)
    return {
        file: {name: contract["evm"]["bytecode"]["object"] for name, contract in contracts.items()}
        for file, contracts in output["contracts"].items()
    }
