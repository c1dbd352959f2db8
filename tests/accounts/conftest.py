from pathlib import Path

import pytest
from django.test import Client

from tests.accounts.wallets import ALICE, sign

DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1.


@pytest.fixture
def configure_chains(settings, tmp_path):
    """Configures chains from (id, test network, RPC URLs). Destinations are connected to themselves."""

    def configure(*chains: tuple[int, bool, *tuple[str, ...]], destinations: tuple[int, ...] = ()) -> None:
        parts = [
            f'[[chains]]\nid = {chain_id}\nname = "Chain {chain_id}"\nrpc_urls = {urls}\n'
            f"test_network = {str(test_network).lower()}\n"
            'signer = { key = "${SIGNER_KEY}" }\n'
            for chain_id, test_network, *urls in chains
        ] + [
            f'[[connections]]\nsource = {chain_id}\ndestination = {chain_id}\nblock_hash_source = "native"\n'
            for chain_id in destinations
        ]
        path = Path(tmp_path / "chains.toml")
        path.write_text("".join(parts))
        # The new setting makes the service read the file again.
        settings.CHAINS_FILE = path

    return configure


@pytest.fixture(autouse=True)
def _one_test_chain_whose_node_is_down(configure_chains):
    configure_chains((31337, True, DEAD_NODE), (5, True, DEAD_NODE), destinations=(31337,))


@pytest.fixture
def alice_client(db):
    """Return a client of a program that signed in as Alice."""
    client = Client()
    message = client.post(
        "/sign-in/message", {"address": ALICE.address, "chainId": "31337"}, content_type="application/json"
    ).json()["message"]
    signed = {"message": message, "signature": sign(message, ALICE)}
    assert client.post("/sign-in/verify", signed, content_type="application/json").status_code == 200
    return client
