"""Source chains whose headers have additional fields."""

import csv
import io
import json
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak

from batch_query_client.bundles import verify_bundle
from batch_query_client.errors import InvalidBundle
from proving.models import Transaction
from queries.models import BatchStatus
from tests import chain_fixtures, headers
from tests.chains.lying_node import each, lying_node, result
from tests.contracts import l1_block, tries
from tests.explorer import shown_code
from tests.explorer.batches import bundle_of, proven_by
from tests.proving import chain_state, estimated_batches, sources
from tests.proving.relaid import Relaid
from tests.service import CHARLIE, asking, done, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# Nodes may have another name for the slot number, which isn't in the JSON schema of blocks yet.
OTHER_NAME = {name: value for name, value in headers.AMSTERDAM.items() if name != "slotNumber"} | {"slot": 7}
LAYOUTS = {
    "told by its block": (headers.BERACHAIN, False),
    "asked for as it is": (headers.UNTOLD, True),
    "named otherwise": (OTHER_NAME, True),
}
SHARED_PROPERTIES = list(chain_state.HeaderField.__members__)[:13]


there = chain_fixtures.chain_fixture(lambda chain: sources.grow(chain, 12), chain_id=sources.THERE)


def of_there(name: str, *, header: list[str] | None = None) -> dict[str, object]:
    """Return a request for Charlie's balance, or for the header's properties."""
    block = {"header": header} if header else {"accounts": {CHARLIE: {"props": ["BALANCE"]}}}
    return asking({name: block}, source=sources.THERE)


@pytest.mark.long("asked for as it is", "named otherwise")
@pytest.mark.story("told by its block")
@pytest.mark.parametrize(("layout", "raw"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_its_accounts_headers_and_times_are_proven(chain, there, settings, tmp_path, key, layout, raw):
    relaid, block = Relaid(there, layout, raw=raw), 5
    with lying_node(relaid) as url:
        l1 = l1_block.L1Block(chain)
        sources.connect(settings, tmp_path, chain, url)
        l1.tell(block, relaid.hash(block))
        balance = done(submit(key, of_there(f"block:{block}")), chain)
        header = done(submit(key, of_there(f"block:{block}", header=SHARED_PROPERTIES)), chain)
        l1.tell(block + 3, relaid.hash(block + 3))
        time = relaid.timestamp(block + 2)
        timed = done(submit(key, of_there(f"timestamp:{time}")), chain)
    assert chain_state.field_on_chain(
        chain, CHARLIE, block, chain_state.AccountField.BALANCE, source=sources.THERE
    ) == chain_state.balance_at(there, CHARLIE, block)
    in_header = {
        field: chain_state.header_on_chain(chain, block, field, source=sources.THERE)
        for field in (chain_state.HeaderField.TIMESTAMP, chain_state.HeaderField.PARENT_HASH)
    }
    assert list(in_header.values()) == [relaid.timestamp(block), int.from_bytes(relaid.hash(block - 1))]
    hashes = {(sources.THERE, number): relaid.hash(number) for number in (block, block + 2, block + 3)}
    proven = [
        verify_bundle(json.dumps(bundle_of(batch, 1)), block_hashes=hashes).queries[1]
        for batch in (balance, header, timed)
    ]
    assert [list(query.facts) for query in proven] == [["BALANCE"], SHARED_PROPERTIES, ["BALANCE"]]
    assert proven[2].claimed_timestamp == time


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 7, 2**64 - 1])
def test_the_properties_of_the_next_fork_are_proven(chain, there, settings, tmp_path, key, client, number):
    relaid, block = Relaid(there, {**headers.AMSTERDAM, "slotNumber": number}, raw=False), 5
    with lying_node(relaid) as url:
        sources.connect(settings, tmp_path, chain, url)
        l1_block.L1Block(chain).tell(block, relaid.hash(block))
        batch = done(submit(key, of_there(f"block:{block}", header=list(chain_state.HeaderField.__members__))), chain)
    list_hash, slot = (
        chain_state.header_on_chain(chain, block, field, source=sources.THERE)
        for field in (chain_state.HeaderField.BLOCK_ACCESS_LIST_HASH, chain_state.HeaderField.SLOT_NUMBER)
    )
    assert (list_hash.to_bytes(32), slot) == (b"\x0a" * 32, number)
    file = client.get(f"/explorer/query/{batch.pk}/facts.csv").content.decode("utf-8-sig")
    in_file = {row["property"]: row for row in csv.DictReader(io.StringIO(file))}
    assert in_file["BLOCK_ACCESS_LIST_HASH"]["word"] == "0x" + "0a" * 32
    assert in_file["SLOT_NUMBER"]["value"] == str(number)
    printed = shown_code.printed(shown_code.of_block(block)[-2:], chain.url, tmp_path)
    assert [int(text, 0) for text in printed] == [list_hash, number]
    [query] = verify_bundle(
        json.dumps(bundle_of(batch, 1)), block_hashes={(sources.THERE, block): relaid.hash(block)}
    ).queries.values()
    assert list(query.facts) == list(chain_state.HeaderField.__members__)
    assert int.from_bytes(query.facts["SLOT_NUMBER"]) == number


@pytest.mark.long
@pytest.mark.parametrize(("layout", "raw"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_properties_that_it_may_have_elsewhere_are_rejected(chain, there, settings, tmp_path, key, layout, raw):
    with lying_node(Relaid(there, layout, raw=raw)) as url:
        sources.connect(settings, tmp_path, chain, url)
        batch = submit(key, of_there("block:5", header=["TIMESTAMP", "MIX_HASH", "BASE_FEE_PER_GAS"]))
        work_until_done(batch)
    assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, "header_property_missing")
    assert batch.rejection_reason == (
        f"The header of block 5 of chain {sources.THERE} has no MIX_HASH, BASE_FEE_PER_GAS: after the first 13, its "
        "fields are not known to be Ethereum's."
    )


def test_without_a_node_that_tells_its_headers_it_is_waited_for_one(chain, there, settings, tmp_path, key):
    relaid = Relaid(there, headers.UNTOLD, raw=False)
    with lying_node(relaid) as url:
        sources.connect(settings, tmp_path, chain, url)
        submit(key, of_there("block:5"))
        work()
        (sentence,) = waiting()
    assert sentence.startswith(f"No node of The other chain ({sources.THERE}) can be used: 127.0.0.1:")
    assert "refuses debug_getRawHeader" in sentence


@pytest.mark.long
def test_a_bundle_does_not_show_what_no_layout_is_known_to_have(chain, there, settings, tmp_path, key):
    """The bundle is changed to present the header's 16th field as a base fee."""
    relaid, block = Relaid(there, headers.UNTOLD_LONDON, raw=True), 6
    with lying_node(relaid) as url:
        l1_block.L1Block(chain).tell(block, relaid.hash(block))
        sources.connect(settings, tmp_path, chain, url)
        batch = done(submit(key, of_there(f"block:{block}", header=["GAS_USED"])), chain)
    content = bundle_of(batch)
    fee = rlp.decode(bytes.fromhex(content["blocks"][0]["header"][2:]))[15]
    content["queries"][0]["facts"]["BASE_FEE_PER_GAS"] = "0x" + fee.rjust(32, b"\0").hex()
    with pytest.raises(InvalidBundle, match="an unknown fact: 'BASE_FEE_PER_GAS'"):
        proven_by(content)


# Avalanche's accounts have five fields, and ApeChain's eight.
@pytest.mark.long
@pytest.mark.parametrize(
    ("fields", "older"),
    [([1, 2, tries.EMPTY_ROOT, bytes(32), 0], 0), ([1] * 8, 140)],
    ids=["five, young", "eight, old"],
)
def test_accounts_of_another_form_are_rejected(chain, there, settings, tmp_path, key, client, fields, older):
    leaf = tries.leaf(keccak(bytes.fromhex(CHARLIE[2:])), tries.encode(fields))
    relaid = Relaid(there, headers.AVALANCHE | {"stateRoot": keccak(leaf)}, raw=False)
    there.mine(older)

    @each
    def answer(body: Any) -> Any:
        proof = {"accountProof": ["0x" + leaf.hex()], "storageProof": []}
        return result(body, proof) if body["method"] == "eth_getProof" else relaid(body)

    with lying_node(answer) as url:
        sources.connect(settings, tmp_path, chain, url)
        before = Transaction.objects.count()
        estimated = estimated_batches.estimate(client, key, of_there("block:5"))
        batch = work_until_done(submit(key, of_there("block:5")))
    sentence = f"Accounts of this chain have {len(fields)} fields instead of Ethereum's 4: they can't be proven."
    rejection = {
        "code": "proof_unavailable",
        "error": sentence,
        "retryable": False,
        "sourceChainId": str(sources.THERE),
    }
    assert estimated["rejections"] == [rejection]
    assert not batch.rejection_retryable
    assert (estimated["sources"], estimated["gas"]["bound"], Transaction.objects.count()) == ([], 0, before)
    assert (batch.status, batch.rejection_code, batch.rejection_reason) == (
        BatchStatus.REJECTED,
        "proof_unavailable",
        sentence,
    )
