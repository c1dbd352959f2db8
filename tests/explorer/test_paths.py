"""What pages say of old blocks, of blocks of other chains, and of who is trusted for them."""

from typing import Any

import pytest
from django.test import Client

from devnet.devchain import DevChain
from proving.registry.deploying import deploy
from tests.attesting import process
from tests.explorer.batches import (
    SOURCE,
    bundle_of,
    connect_source,
    page,
    path,
    proven_by,
)
from tests.explorer.pages import text_of
from tests.factories import is_done, until
from tests.service import CHARLIE, a_key, request, submit, work

pytestmark = pytest.mark.django_db


# --- On a chain -------------------------------------------------------------------------------------------------------


def of(account: str, *, source: int, block: int) -> dict[str, Any]:
    """The body that asks for an account of another chain than the destination."""
    return request(account, block=block) | {"data": request(account, block=block, chain_id=source)["data"]}


def test_a_block_of_another_chain_is_read_where_it_is_proven_and_its_bundle_names_its_own_chain(
    service: DevChain, tmp_path
):
    with DevChain(chain_id=SOURCE) as source:
        source.rpc("anvil_setBalance", CHARLIE, "0x7")
        source.mine(5)
        block = source.head() - 3
        attester = process.chains_file(tmp_path / "attester", source.url, chain_id=SOURCE).parent
        with process.running(attester) as running:
            connect_source(tmp_path, source.url, {running.account_address: running.url})
            deploy(31337, SOURCE)
            batch = submit(a_key(), of(CHARLIE, source=SOURCE, block=block))

            def is_proven() -> bool:
                work()
                service.mine()
                return is_done(batch)

            # An attester that takes long to answer is not asked again for a while.
            until(is_proven, "DONE", seconds=90)
    text = text_of(page(batch))
    assert "BALANCE 0.000000000000000007 ETH" in text
    assert "The block hash source vouched for this block." in text
    assert "Set RPC_URL to a node of this chain, not of the source chain." in text
    # The source chain is gone by now, but not what was proven of it.
    assert "the registry holds exactly the proven values." in Client().post(f"{path(batch)}/1/read").text
    verified = proven_by(bundle_of(batch, 1)).queries[1]
    assert (verified.block_number, verified.source_chain_id) == (block, SOURCE)
