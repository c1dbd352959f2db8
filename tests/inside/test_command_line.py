"""Files of rows, as the form of the console and `bqs` read them."""

from typing import Any

import pytest

from batch_query_client.command_line.asked_in_files import Asked, document
from explorer.new_batch import pasted_rows
from explorer.new_batch.drafts import Draft, Row
from tests.service import ALICE

CHAINS, B = {"ethereum": 1, "op mainnet": 10}, "0x" + "bb" * 20


def asked(**given: Any) -> Any:
    nothing = dict.fromkeys(("file", "destination", "chain", "block", "time", "fee", "webhook"))
    lists = dict.fromkeys(("accounts", "props", "slots", "header", "webhook_events"), ())
    return document(Asked(**{**nothing, **lists, "is_paid_by_caller": False, **given}), lambda: CHAINS)


# What the console's form takes, and what `bqs` took from the beginning.
FILES = {
    "a list": f"{ALICE}\n\n{B}\n",
    "several on a line": f"{ALICE}, {B}\n",
    "in the form's order": f"{ALICE},15,balance nonce,0x5|6,,Ethereum\n{B},latest,,7,,\n",
    "named": f"Chain,Block,Account,Props,Slots,Header\n10,finalized,{ALICE} {B},BALANCE,,\n1,1_000,,,,timestamp\n",
    "of a spreadsheet": f"\ufeffaddress;chain;block\r\n{ALICE};OP Mainnet;2026-01-01 00:00\r\n",
    "tabs": f"block\taddress\n2026-01-01T00:00:00Z\t{ALICE}\nblock:16\t{B}\ntimestamp:5\t{B}\n",
    "quoted": f'address,slots\n"{ALICE}\n{B}","1, 2"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_asks_for_the_same_here_and_in_the_form_of_the_console(tmp_path, name):
    """Fill what lines leave out as the form's row does, and here as the options say."""
    names = {chain: str(chain_id) for chain, chain_id in CHAINS.items()}
    pasted = pasted_rows.read(FILES[name], Row(source="1", at="block", block="15"), names, 100)
    assert not pasted.faults
    form = Draft("10", rows=pasted.rows).request(100).document["data"]
    file = tmp_path / "asked.csv"
    file.write_text(FILES[name], newline="")
    here = asked(file=str(file), destination=10, chain=1, block="15", props=["BALANCE"])["data"]
    assert of_all(here) == of_all(form)


def of_all(data: Any) -> set[tuple[object, ...]]:
    """Return all that a request asks for, however it is spelled."""
    found: set[tuple[object, ...]] = set()
    for chain, blocks in data.items():
        for at, block in blocks.items():
            found |= {(chain, at, name) for name in block.get("header", ())}
            for account, entry in block.get("accounts", {}).items():
                found |= {(chain, at, account, name) for name in entry.get("props", ())}
                found |= {(chain, at, account, int(slot, 16)) for slot in entry.get("slots", ())}
    return found
