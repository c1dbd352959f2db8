"""The gas after Amsterdam that `make bench-gas` prints, on geth."""

import pytest
from eth_account import Account

from campaigns.benchmarks.gas import Lab, gas_after_amsterdam, jump_cases, measure_votes
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from devnet.geth import Geth
from tests.fixtures_folder import needs_fixtures
from tests.real_nodes.driven_geth import DrivenGeth

pytestmark = pytest.mark.geth

_CONTRACT = "0x" + "55" * 20
# PUSH1 1 PUSH0 SSTORE: stores a word.
_STORES = "0x60015f55"


@pytest.mark.parametrize("size", [1, 4000], ids=["execution", "the floor of bytes"])
def test_a_repeated_transaction_takes_what_it_takes_in_a_block(size):
    with DevChain() as chain, DrivenGeth(chain.chain_id, amsterdam_time=0, namespaces="eth,debug") as node:
        chain.rpc("anvil_setCode", _CONTRACT, _STORES)
        asked = {"from": ACCOUNTS[0][0], "to": _CONTRACT, "data": "0x" + "01" * size, "gas": hex(10**6)}
        receipt = chain.rpc("eth_sendTransactionSync", asked)
        repeated = gas_after_amsterdam(node, chain, asked, receipt)
    node = DrivenGeth(chain.chain_id, amsterdam_time=0)
    node.genesis["alloc"][_CONTRACT] = {"balance": "0x0", "code": _STORES}
    with node:
        fields = {"chainId": chain.chain_id, "nonce": 0, "to": _CONTRACT, "data": asked["data"], "gas": 10**6}
        fields |= {"maxFeePerGas": 10**10, "maxPriorityFeePerGas": 10**9}
        raw = Account.sign_transaction(fields, ACCOUNTS[0][1]).raw_transaction.to_0x_hex()
        sent = node.rpc("eth_sendRawTransaction", raw)
        node.mine()
        mined = int(node.rpc("eth_getTransactionReceipt", sent)["gasUsed"], 16)
    assert repeated == mined != int(receipt["gasUsed"], 16)


def test_the_page_about_paths_says_what_a_jump_costs_after_amsterdam():
    page = (PROJECT / "docs/concepts/paths.md").read_text()
    cases = [case for case in jump_cases() if case.name.endswith("no hash kept")]
    with Geth(31_337, amsterdam_time=0, namespaces="eth,debug") as geth, Lab(cases[0].number, geth) as lab:
        for result in map(lab.run, cases):
            figures = f"| {result.tx:,} | {result.amsterdam:,} | {result.calldata_bytes:,} |"
            assert figures in page, result.case


@pytest.mark.long
@needs_fixtures
def test_the_page_about_contracts_says_what_a_vote_costs_after_amsterdam():
    page = (PROJECT / "docs/using/contracts.md").read_text()
    with Geth(31_337, amsterdam_time=0, namespaces="eth,debug") as geth:
        for result in measure_votes(geth):
            assert f"| {result.tx:,} | {result.amsterdam:,} |" in page, result.case
