"""The documentation's page in TypeScript, in a real browser: a voter shows a balance by the wallet's own proof."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from playwright.sync_api import BrowserContext, Page, Route, expect

from devnet.devchain import PROJECT, DevChain
from tests.accounts.wallets import ALICE, BOB
from tests.browser.wallet import NO_SUCH_METHOD, Wallet
from tests.client.library import compile_library
from tests.contracts.deployed import Deployed
from tests.docs.examples import blocks_of
from tests.service import a_key, submit, work_until_done

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "0x" + "70" * 20
BALANCES_SLOT = 3
ALICE_HAS, BOB_HAS = 5 * 10**18, 7
# A node that is in the node above, as some nodes list it again.
EMBEDDED = "0xc22001"


def slot_of(holder: str) -> str:
    return "0x" + keccak(encode(["address", "uint256"], [holder, BALANCES_SLOT])).hex()


@pytest.fixture
def votes(service: DevChain) -> Deployed:
    """Return the contract. Alice and Bob have tokens at its block, and the token's storage root is proven."""
    service.rpc("anvil_setBalance", TOKEN, "0x1")
    for holder, balance in ((ALICE, ALICE_HAS), (BOB, BOB_HAS)):
        service.rpc("anvil_setStorageAt", TOKEN, slot_of(holder.address), f"0x{balance:064x}")
    service.mine(2)
    block = service.head() - 1
    call_command("deploy_reader", 31337, stdout=(output := io.StringIO()))
    data = {f"block:{block}": {"accounts": {TOKEN: {"props": ["STORAGE_ROOT"]}}}}
    work_until_done(submit(a_key(), {"destinationChainId": "31337", "fee": "0", "data": {"31337": data}}), service)
    name, reader = "SnapshotVoteByProof", output.getvalue().split()[-1]
    artifact = compile_library([name])[name]
    return Deployed(service, name, reader, 31337, TOKEN, BALANCES_SLOT, block, artifact=artifact)


@pytest.fixture
def page(page: Page, context: BrowserContext, site: str, wallet: Wallet, service: DevChain, votes: Deployed) -> Page:
    """Return the documentation's page with its script, as both are written there."""
    blocks = blocks_of("docs/using/typescript.md")
    [html] = [block.code for block in blocks if block.language == "html"]
    [program] = [block.code for block in blocks if "window" in block.code]
    made = subprocess.run(
        [PROJECT / ".venv" / "bin" / "node", Path(__file__).with_name("modules.mjs")],
        cwd=PROJECT / "tests",
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    script = json.loads(made.stdout)
    html = html.replace('data-contract="0x..."', f'data-contract="{votes.address}"')
    html = html.replace('data-node="https://..."', f'data-node="{site}/node"')
    html += f'<script type="importmap">{json.dumps({"imports": script["imports"]})}</script>'
    html += '<script type="module" src="/program.js"></script>'
    context.route(f"{site}/vote.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    context.route(
        f"{site}/program.js", lambda route: route.fulfill(body=script["code"], content_type="text/javascript")
    )
    context.route(
        f"{site}/node_modules/**", lambda route: route.fulfill(path=f"{PROJECT}{urlsplit(route.request.url).path}")
    )
    context.route(f"{site}/node", lambda route: answer(route, service))
    wallet.chain, wallet.fills_in = service, True
    wallet.put_into(context)
    page.goto("/vote.html")
    return page


def answer(route: Route, chain: DevChain) -> None:
    """Answer a call of the page's node."""
    call = route.request.post_data_json
    assert call["method"] == "eth_getProof"
    route.fulfill(json={"jsonrpc": "2.0", "id": call["id"], "result": chain.rpc(call["method"], *call["params"])})


def outcome(page: Page, text: str) -> None:
    page.locator("#vote").click()
    expect(page.locator("#outcome")).to_have_text(text)


def test_a_voter_s_wallet_proves_the_balance(page: Page, service: DevChain, wallet: Wallet, votes: Deployed):
    own, other = (
        service.rpc("eth_getProof", TOKEN, [slot_of(holder.address)], hex(votes.call("snapshotBlock")))
        for holder in (ALICE, BOB)
    )
    nodes = own["storageProof"][0]["proof"]
    last = nodes[-1]
    changed = last[:-1] + ("0" if last[-1] != "0" else "1")

    def forged(proof: list[str]) -> Any:
        return own | {"storageProof": [own["storageProof"][0] | {"proof": proof}]}

    for proof in ([*nodes[:-1], changed], other["storageProof"][0]["proof"], nodes[:-1], []):
        wallet.lies["eth_getProof"] = forged(proof)
        outcome(page, "Your vote isn't counted: InvalidProof")
    assert not wallet.sent

    wallet.lies["eth_getProof"] = forged([*nodes, EMBEDDED])
    outcome(page, "Your vote is counted.")
    assert votes.call("votesFor") == ALICE_HAS
    outcome(page, "Your vote isn't counted: HasVoted")

    # This wallet doesn't allow the method. Its owner's proof comes from the page's node.
    wallet.account, wallet.refuses["eth_getProof"] = BOB, NO_SUCH_METHOD
    outcome(page, "Your vote is counted.")
    assert votes.call("votesFor") == ALICE_HAS + BOB_HAS
    assert len(wallet.sent) == 2
