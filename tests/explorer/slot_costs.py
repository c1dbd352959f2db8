"""The sentence of an estimate that compares a stored slot with one that its reader shows, and the real gas of both."""

import html
import re

from django.test import Client
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from accounts.models import ApiKey
from devnet.devchain import ACCOUNTS, DevChain
from devnet.execution_client import ExecutionClient
from proving.models import FactsRegistry
from tests import service
from tests.explorer.batch_forms import form
from tests.factories import client_of

_SENTENCE = re.compile(
    r"Storing a slot costs about ([\d,]+) gas once, and each transaction that reads it ([\d,]+)\. "
    r"A transaction that shows the slot with a proof instead costs about ([\d,]+), and [^.]+\. "
    r"(Storing is cheaper from the first reading on\.|Showing is cheaper up to ([\d,]+) readings? of a slot, )"
)


def told(chain_id: int, block: int, account: str, slots: list[str]) -> tuple[int, int, int, int] | None:
    """Return the gas of storing a slot, reading it and showing it, and up to how many readings showing is cheaper.

    None: an estimate on the page has no such sentence.
    """
    row = {"source": str(chain_id), "at": "block", "block": str(block), "kind": "slot", "props": []}
    posted = form(row | {"accounts": account, "slots": "\n".join(slots)}, destination=str(chain_id))
    page = client_of(service.ALICE).post("/new-batch/estimate", posted).text
    found = _SENTENCE.search(" ".join(html.unescape(page).split()))
    if found is None:
        assert "Already proven" in page, page
        return None
    stored, read, shown, _, readings = (text.replace(",", "") for text in found.groups("0"))
    return int(stored), int(read), int(shown), int(readings)


def taken(
    client: Client, key: ApiKey, chain: DevChain | ExecutionClient, block: int, account: str, slot: str
) -> tuple[int, int]:
    """Return what the node estimates for reading the slot and for showing it. The slot is a fact, and its root."""
    asked = service.asking(
        {f"block:{block}": {"accounts": {account: {"slots": [slot]}}}},
        source=chain.chain_id,
        destination=chain.chain_id,
    )
    answer = client.post("/read-proofs", asked, content_type="application/json", headers=service.header(key))
    [proof] = answer.json()["proofs"]
    signature = "accountStorageSlotValues(address,uint256,bytes32)"
    words = encode(["address", "uint256", "bytes32"], [account, block, int(slot, 16).to_bytes(32)])
    reading = {"to": FactsRegistry.objects.get().address, "data": f"0x{keccak(text=signature)[:4].hex()}{words.hex()}"}
    showing = {"to": proof["view"]["to"], "data": proof["view"]["data"]}
    read, shown = (
        int(chain.rpc("eth_estimateGas", call | {"from": ACCOUNTS[0][0]}), 16) for call in (reading, showing)
    )
    return read, shown
