from tests.chain_fixtures import chain_fixture

# A chain whose newest final block is two below its head.
devchain = chain_fixture(lambda chain: chain.mine(10))
