from pathlib import Path

import pytest
from django.test import Client

from tests.accounts.wallets import ALICE, sign

DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1.


@pytest.fixture
def configure_chains(settings, tmp_path):
    """Return a function that configures chains from (id, test network, RPC URLs). Each destination is also its own
    source.
    """

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
        # The service reads a chains file again only after the setting has changed.
        settings.CHAINS_FILE = path

    return configure


@pytest.fixture(autouse=True)
def _one_test_chain_whose_node_is_down(configure_chains):
    configure_chains((31337, True, DEAD_NODE), (5, True, DEAD_NODE), destinations=(31337,))


@pytest.fixture
def alice_client(db):
    """Return the client of a program in which Alice is signed in."""
    client = Client()
    message = client.post(
        "/sign-in/message", {"address": ALICE.address, "chainId": "31337"}, content_type="application/json"
    ).json()["message"]
    signed = {"message": message, "signature": sign(message, ALICE)}
    assert client.post("/sign-in/verify", signed, content_type="application/json").status_code == 200
    return client
