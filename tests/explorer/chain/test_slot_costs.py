"""Estimates name the cheaper way for readers of a slot, with both prices."""

import io
from typing import Any

import pytest
from django.core.management import call_command
from eth_utils.crypto import keccak

from tests.explorer import slot_costs
from tests.proving.estimated_batches import estimate
from tests.service import asking, done, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

TOKEN = "0x" + "70" * 20


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 40, 600])
def test_the_page_names_what_a_stored_slot_and_a_shown_one_cost(service, client, key, count):
    slots = ["0x" + keccak(place.to_bytes(32)).hex() for place in range(count)]
    service.rpc("anvil_setBalance", TOKEN, "0x1")
    for slot in slots:
        service.rpc("anvil_setStorageAt", TOKEN, slot, f"0x{10**18 + 1:064x}")
    service.mine(3)
    block, some = service.head() - 1, slots[:20]

    def of(account: dict[str, Any]) -> dict[str, Any]:
        return asking({f"block:{block}": {"accounts": {TOKEN: account}}})

    [source] = estimate(client, key, of({"slots": some}))["sources"]
    figures = slot_costs.told(31337, block, TOKEN, some)
    assert figures
    stored, read, shown, readings = figures
    assert stored == pytest.approx(source["parts"]["slots"]["gas"]["expected"] / len(some), abs=1)
    # One reading more makes up for storing.
    assert stored + readings * read >= readings * shown
    assert stored + (readings + 1) * read < (readings + 1) * shown

    call_command("deploy_reader", 31337, stdout=io.StringIO())
    done(submit(key, of({"props": ["STORAGE_ROOT"], "slots": some})), service)
    assert (read, shown) == pytest.approx(slot_costs.taken(client, key, service, block, TOKEN, some[0]), rel=0.06)
    # Slots that are facts cost nothing.
    assert slot_costs.told(31337, block, TOKEN, some) is None
