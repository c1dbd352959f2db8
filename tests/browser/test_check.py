"""`Check it here`: a batch's proof is verified in a real browser, and by a wallet's word on hashes and the registry."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page

from explorer.bundles import batch_verifying
from queries.models import Batch
from tests.client.test_batch_bundles import FORGERIES, remember
from tests.explorer.batches import SOURCE, path, word
from tests.explorer.made_tries import asked_of_everything, prove

pytestmark = pytest.mark.django_db(transaction=True)

_VERIFY = """
async ([batch, request, documents]) => {
    const { read, requireAsked, verify } = await import("/static/js/bundles.js");
    const outcomes = {};
    for (const [name, text] of Object.entries(documents)) {
        try {
            const bundle = read(text);
            const { queries, hashes } = await verify(bundle);
            requireAsked(bundle, queries, batch, request);
            const told = queries.map((one) => ({
                ...one, facts: Object.fromEntries(one.facts), slots: Object.fromEntries(one.slots),
            }));
            outcomes[name] = { queries: told, hashes: Object.fromEntries(hashes) };
        } catch (error) {
            outcomes[name] = `${error.constructor.name}: ${error.message}`;
        }
    }
    return outcomes;
}
"""


@pytest.fixture
def made(site: str, tmp_path: Path) -> Batch:
    """DONE, of two source chains, without a chain."""
    batch = asked_of_everything(tmp_path)
    prove(batch)
    return batch


def bundle_of(batch: Batch) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Client().get(f"{path(batch)}/bundle.json").getvalue())
    return found


def verified(page: Page, batch: Batch, documents: dict[str, str], request: Any = None) -> dict[str, Any]:
    """What comes of bundles in the page of the batch: an error's name and sentence, or what they prove."""
    request = request or json.loads(batch.request)
    page.goto(path(batch))
    found: dict[str, Any] = page.evaluate(_VERIFY, [batch.pk, request, documents])
    return found


# --- Bundles ----------------------------------------------------------------------------------------------------------


def test_what_holds_shows_what_the_service_s_verifier_says(page: Page, made: Batch):
    bundle = bundle_of(made)
    shown = verified(page, made, {"": json.dumps(bundle)})[""]
    theirs = batch_verifying.verify(json.dumps(bundle))
    assert shown["hashes"] == {f"{chain}/{number}": told for (chain, number), told in theirs.hashes.items()}
    for mine, (number, proven) in zip(shown["queries"], theirs.queries.items(), strict=True):
        assert (mine["number"], mine["chain"], mine["blockNumber"], mine["blockHash"]) == (
            number,
            proven.source_chain_id,
            str(proven.block_number),
            proven.block_hash,
        )
        assert (mine["account"], mine["facts"], mine["slots"]) == (proven.account, proven.facts, proven.slots)
        assert mine["isTimeShown"] == (proven.time is not None)


def test_no_forgery_holds_in_a_browser(page: Page, made: Batch):
    bundle = bundle_of(made)
    documents: dict[str, str] = {}
    with remember(bundle):
        for name, (change, _) in FORGERIES.items():
            forged = copy.deepcopy(bundle)
            change(forged)
            documents[name] = json.dumps(forged)
    outcomes = verified(page, made, documents)
    assert len(outcomes) == len(FORGERIES) > 60
    for name, (_, said) in FORGERIES.items():
        assert isinstance(outcomes[name], str), name
        assert re.fullmatch(rf"Refusal: [^\n]*({said})[^\n]*\.", outcomes[name]), (name, outcomes[name])


WRONG_REQUESTS: dict[str, tuple[Callable[[Any], object], str]] = {
    "another destination": (lambda r: r.update(destinationChainId="1"), "for another destination chain"),
    "an account more": (
        lambda r: at_block(r, 12)["accounts"].update({"0x" + "11" * 20: {"props": ["NONCE"]}}),
        "lacks NONCE of 0x1111111111111111111111111111111111111111 at block:12 of chain 31337",
    ),
    "an account less": (lambda r: at_block(r, 13)["accounts"].popitem(), "a query that was not asked for"),
    "a property more": (lambda r: at_block(r, 12)["header"].append("TIMESTAMP"), "lacks TIMESTAMP of the header"),
    "a property less": (lambda r: at_block(r, 12)["header"].pop(), "has more of the header at block:12"),
    "another slot": (lambda r: accounts_with_slots(r)[0].update(slots=["0x5", "0x7"]), f"lacks {word(7)}"),
    "a slot less": (lambda r: accounts_with_slots(r)[0].update(slots=["0x5"]), "has more of 0x"),
    "another block": (lambda r: rename(r, "block:13", "block:11"), "lacks NONCE of .* at block:11"),
    "another time": (lambda r: rename(r, "timestamp:1700000005", "timestamp:1700000006"), "lacks NONCE of .* at time"),
    "another chain": (lambda r: r["data"].update({"1": r["data"].pop(str(SOURCE))}), "lacks BALANCE of .* of chain 1"),
}


def at_block(request: Any, number: int) -> Any:
    return request["data"]["31337"][f"block:{number}"]


def accounts_with_slots(request: Any) -> list[Any]:
    return [entry for entry in at_block(request, 12)["accounts"].values() if entry.get("slots")]


def rename(request: Any, old: str, new: str) -> None:
    blocks = request["data"]["31337"]
    blocks[new] = blocks.pop(old)


def test_a_proof_of_something_else_than_was_asked_for_is_refused(page: Page, made: Batch):
    bundle = bundle_of(made)
    documents = {"": json.dumps(bundle)}
    for name, (change, said) in WRONG_REQUESTS.items():
        request = json.loads(made.request)
        change(request)
        outcome = verified(page, made, documents, request)[""]
        assert isinstance(outcome, str), name
        assert re.search(f"^Refusal: .*{said}", outcome), (name, outcome)
    forged = {
        "batch": bundle | {"batch": "01M7W1MRHW703BTRFFPT53VVP5"},
        "selector": bundle | {"queries": [bundle["queries"][0] | {"selector": "block:13"}, *bundle["queries"][1:]]},
        "time": bundle | {"queries": [bundle["queries"][0] | {"timestamp": "1700000005"}, *bundle["queries"][1:]]},
    }
    outcomes = verified(page, made, {name: json.dumps(document) for name, document in forged.items()})
    assert outcomes == {
        "batch": "Refusal: The bundle is that of another batch.",
        "selector": "Refusal: The block of query 1 is not the one asked for.",
        "time": "Refusal: The time of query 1 is not the one asked for.",
    }


# --- The parts, beside the service's ----------------------------------------------------------------------------------
