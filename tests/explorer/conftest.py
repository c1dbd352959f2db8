import pytest

from tests.service import chains_toml

DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1: no page asks a chain.


@pytest.fixture(autouse=True)
def one_chain_whose_node_is_down(settings, tmp_path) -> None:
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE, chain='explorer_url = "https://scan.example"')
