"""Facts of recorded mainnet headers from all years, proven by jumps, on a registry with mainnet's values."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import rlp
from django.test import Client
from eth_utils.crypto import keccak

from batch_query_client.bundles import verify_bundle
from chains.beacon.jumps import MAINNET
from devnet import beacon_api, devchain
from proving.models import BeaconAnchor, JumpLeaves, JumpLeavesKind
from queries.models import BatchStatus, Block
from tests import deployed, fixtures_folder, headers
from tests.chains.lying_node import each, error, lying_node, result
from tests.contracts import l1_block, recorded_beacon
from tests.explorer.batches import bundle_of
from tests.proving import beacon_chains, estimated_batches
from tests.proving.chain_state import HeaderField, header_on_chain
from tests.service import asking, chains_toml, fresh, source_tables, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside, fixtures_folder.needs_fixtures, pytest.mark.long]

# Blocks of Capella, of Deneb's first period and of Deneb; and a block before the Merge.
SINCE_CAPELLA, BEFORE_MERGE = (17_034_870, 19_426_587, 22_162_263), 1_000_001


def newest() -> headers.Fields:
    """Return a header that names the recorded state's beacon block. Its other fields are made up."""
    slot = recorded_beacon.anchor().header.slot + 200
    return {
        **headers.PRAGUE,
        "number": 22_500_000,
        "timestamp": MAINNET.genesis_time + slot * MAINNET.slot_seconds,
        "parentBeaconBlockRoot": recorded_beacon.anchor().header.root,
    }


def told(encoded: bytes) -> dict[str, Any]:
    """Return a recorded header in a node's JSON form."""
    fields: headers.Fields = {
        name: int.from_bytes(content) if isinstance(like, int) else content
        for (name, like), content in zip(headers.AMSTERDAM.items(), rlp.decode(encoded), strict=False)
    }
    return headers.as_json(fields)


def node() -> Iterator[str]:
    blocks: Mapping[int, dict[str, Any]] = {
        number: told(recorded_beacon.header(number)) for number in (*SINCE_CAPELLA, BEFORE_MERGE)
    }
    head = headers.as_json(newest())

    @each
    def answer(body: Any) -> Any:
        if body["method"] == "eth_chainId":
            return result(body, "0x1")
        if body["method"] == "eth_getBlockByNumber":
            named = body["params"][0]
            if not named.startswith("0x") or int(named, 16) == int(head["number"], 16):
                return result(body, head)
            return result(body, blocks.get(int(named, 16)))
        # The node has no states, and the service requests none.
        return error(body, -32601, "Method not found")

    with lying_node(answer) as url:
        yield url


@pytest.fixture
def service(chain: devchain.DevChain, settings, tmp_path) -> Iterator[beacon_api.BeaconApi]:
    """Configure the service with Ethereum as a source. An L1Block tells of Ethereum's newest block."""
    for number in SINCE_CAPELLA:
        period = MAINNET.period(recorded_beacon.block(number).header.slot)
        content = b"".join(recorded_beacon.roots(number))
        JumpLeaves.objects.create(chain_id=1, kind=JumpLeavesKind.PERIOD, number=period, content=content)
    records = b"".join(digest + total.to_bytes(32, "little") for digest, total in recorded_beacon.records())
    JumpLeaves.objects.create(chain_id=1, kind=JumpLeavesKind.EPOCH, number=122, content=records, is_complete=True)
    JumpLeaves.objects.update(is_complete=True)
    with contextmanager(node)() as url, beacon_api.BeaconApi(beacon_chains.mainnets_node(SINCE_CAPELLA)) as api:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        lines = f'beacon_urls = ["{api.url}"]\nera_files = ["nowhere"]'
        more = source_tables(1, "Ethereum", url, 'block_hash_source = "op-stack"', chain=lines)
        settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + more)
        l1_block.L1Block(chain).tell(22_500_000, keccak(headers.encode(newest())))
        deployed.deploy(chain.chain_id, 1)
        yield api


def of_header(number: int, *fields: HeaderField) -> dict[str, Any]:
    return asking({f"block:{number}": {"header": [field.name for field in fields]}}, source=1)


def test_headers_of_each_era_are_proven(service, chain, key, client):
    fields = {
        number: [HeaderField.TIMESTAMP, HeaderField.GAS_USED, HeaderField.PARENT_HASH, HeaderField.MIX_HASH]
        for number in (*SINCE_CAPELLA, BEFORE_MERGE)
    }
    fields[BEFORE_MERGE].append(HeaderField.DIFFICULTY)
    fields[SINCE_CAPELLA[0]].append(HeaderField.BASE_FEE_PER_GAS)
    every = asking({f"block:{number}": {"header": ["TIMESTAMP"]} for number in fields}, source=1)
    (told,) = estimated_batches.estimate(client, key, every)["sources"]
    assert told["jumps"] == {"count": 4, "fromBlock": "22500000"}
    batches = [submit(key, of_header(number, *properties)) for number, properties in fields.items()]
    for batch in batches:
        assert work_until_done(batch, chain, rounds=15).status == BatchStatus.DONE
    for number, properties in fields.items():
        content = rlp.decode(recorded_beacon.header(number))
        for field in properties:
            assert header_on_chain(chain, number, field, source=1) == int.from_bytes(content[field])
    path = f"/explorer/query/{batches[-1].pk}"
    digest = keccak(recorded_beacon.header(BEFORE_MERGE))
    assert verify_bundle(json.dumps(bundle_of(batches[-1], 1)), block_hashes={(1, BEFORE_MERGE): digest})
    assert "Reached by the beacon chain" in " ".join(Client().get(path).text.split())
    begins = dict(Block.objects.filter(path_unit="jumps").values_list("number", "path_origin"))
    assert begins == {**dict.fromkeys(SINCE_CAPELLA, 22_500_000), BEFORE_MERGE: None}
    assert BeaconAnchor.objects.count() == 1


def test_a_header_property_that_the_fork_lacks_is_rejected(service, key):
    batch = submit(key, of_header(BEFORE_MERGE, HeaderField.TIMESTAMP, HeaderField.BASE_FEE_PER_GAS))
    assert work_until_done(batch).rejection_code == "header_property_missing"
    assert fresh(batch).rejection_reason == (
        "The header of block 1000001 of chain 1 has no BASE_FEE_PER_GAS: its fork has no such fields."
    )


def test_accounts_so_old_are_rejected_where_no_node_has_their_states(service, key):
    body = asking({f"block:{BEFORE_MERGE}": {"accounts": {"0x" + "11" * 20: {"props": ["BALANCE"]}}}}, source=1)
    batch = submit(key, body)
    assert work_until_done(batch).rejection_code == "proof_unavailable"
    assert fresh(batch).rejection_reason.endswith("(-32601): it doesn't serve that method.")
