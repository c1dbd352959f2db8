"""The documentation's page in TypeScript, in a real browser: a voter shows a balance by the wallet's own proof."""

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from eth_abi.abi import encode
from eth_account import Account
from eth_utils.crypto import keccak
from playwright.sync_api import BrowserContext, Page, Route, expect

from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.accounts.wallets import ALICE, BOB
from tests.browser.wallet import NO_SUCH_METHOD, Wallet
from tests.client.library import compile_library
from tests.contracts.deployed import Deployed
from tests.docs.examples import blocks_of
from tests.service import a_key, submit, work_until_done

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "0x" + "70" * 20
BALANCES_SLOT = 3
CHARLIE = Account.from_key(ACCOUNTS[2][1])
BALANCES = {ALICE: 5 * 10**18, BOB: 7, CHARLIE: 1}
# A node that is in the node above, as some nodes list it again.
EMBEDDED = "0xc22001"
# reth's error for a block that is too old for its proofs.
TOO_OLD = (-32602, "distance to target block exceeds maximum proof window")


def slot_of(holder: str) -> str:
    return "0x" + keccak(encode(["address", "uint256"], [holder, BALANCES_SLOT])).hex()


@pytest.fixture
def votes(service: DevChain) -> Deployed:
    """Return the contract. Alice and Bob have tokens at its block, and the token's storage root is proven."""
    service.rpc("anvil_setBalance", TOKEN, "0x1")
    for holder, balance in BALANCES.items():
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
    """Return the documentation's page with the script that it names."""
    [html] = [block.code for block in blocks_of("docs/using/typescript.md") if block.language == "html"]
    made = subprocess.run(
        [PROJECT / ".venv" / "bin" / "node", Path(__file__).parents[1] / "modules.mjs"],
        cwd=PROJECT / "tests",
        input=(PROJECT / "dev/examples/vote.ts").read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    script = json.loads(made.stdout)
    html = html.replace('data-contract="0x..."', f'data-contract="{votes.address}"')
    html = html.replace('data-node="https://..."', f'data-node="{site}/node"')
    html = f'<script type="importmap">{json.dumps({"imports": script["imports"]})}</script>{html}'
    context.route(f"{site}/vote.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    context.route(f"{site}/vote.js", lambda route: route.fulfill(body=script["code"], content_type="text/javascript"))
    context.route(
        f"{site}/node_modules/**", lambda route: route.fulfill(path=f"{PROJECT}{urlsplit(route.request.url).path}")
    )
    wallet.chain, wallet.fills_in = service, True
    wallet.put_into(context)
    page.goto("/vote.html")
    return page


def answer(route: Route, chain: DevChain) -> None:
    """Answer a call of the page's node."""
    call = json.loads(route.request.post_data or "")
    assert call["method"] == "eth_getProof"
    route.fulfill(json={"jsonrpc": "2.0", "id": call["id"], "result": chain.rpc(call["method"], *call["params"])})


def outcome(page: Page, text: str | re.Pattern[str]) -> None:
    page.locator("#vote").click()
    expect(page.locator("#outcome")).to_have_text(text)


@pytest.mark.long
def test_a_voter_s_wallet_proves_the_balance(
    page: Page, context: BrowserContext, site: str, service: DevChain, wallet: Wallet, votes: Deployed
):
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

    # No node is there yet, so the wallet's proof counts.
    wallet.lies["eth_getProof"] = forged([*nodes, EMBEDDED])
    outcome(page, "Your vote is counted.")
    assert votes.call("votesFor") == BALANCES[ALICE]
    outcome(page, "Your vote isn't counted: HasVoted")
    wallet.refuses["eth_getProof"] = NO_SUCH_METHOD
    outcome(page, re.compile("Your vote isn't counted: HTTP request failed"))

    context.route(f"{site}/node", lambda route: answer(route, service))
    for wallet.account, wallet.refuses["eth_getProof"] in ((BOB, NO_SUCH_METHOD), (CHARLIE, TOO_OLD)):
        outcome(page, "Your vote is counted.")
    assert votes.call("votesFor") == sum(BALANCES.values())
    assert len(wallet.sent) == 3

    # The votes of another source chain, which the reader doesn't know. The wallet isn't asked for its proofs.
    wallet.refuses.clear()
    count = wallet.asked.count("eth_getProof")
    other_source = votes.code.replace((31337).to_bytes(32), (1).to_bytes(32))
    service.rpc("anvil_setCode", votes.address, "0x" + other_source.hex())
    wallet.account = Account.from_key(ACCOUNTS[3][1])
    outcome(page, "Your vote isn't counted: STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED")
    assert wallet.asked.count("eth_getProof") == count
