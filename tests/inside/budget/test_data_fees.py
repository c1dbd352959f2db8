"""Data fees of rollups."""

from chains.questions import _read_receipt
from chains.rollups import data_cost
from config.configured_chains import get_rpc
from tests.proving.money import serve
from tests.proving.rollups import FEE_OF_A_BYTE, GAS_PRICE_ORACLE, oracle_at
from tests.service import ALICE, BOB


def test_what_is_too_long_for_one_transaction_takes_the_fees_of_several(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 7, False)
    assert data_cost(get_rpc(31337), 250_000, 1000).wei == 3 * (2 * FEE_OF_A_BYTE * (250_000 // 3 + 200) + 7 * 1000)


# Receipts of Optimism's nodes since Ecotone and since Isthmus, and of Arbitrum's nodes.
RECEIPTS = {
    "l1Fee": ({"l1Fee": "0x24a1e7f3", "l1GasUsed": "0x640", "l1FeeScalar": None}, 0x24A1E7F3, False),
    "operator": ({"l1Fee": "0x8", "operatorFeeScalar": "0x0", "operatorFeeConstant": "0x5"}, 8, True),
    "no operator": ({"l1Fee": "0x8", "operatorFeeScalar": "0x0", "operatorFeeConstant": "0x0"}, 8, False),
    "arbitrum": ({"gasUsedForL1": "0x1f4", "l1BlockNumber": "0x1", "timeboosted": False}, None, False),
    "ethereum": ({}, None, False),
}


def test_receipts_of_rollups_are_read(chain):
    sent = chain.rpc("eth_sendTransactionSync", {"from": ALICE, "to": BOB, "value": "0x1"})
    for name, (more, data_fee, has_operator_fee) in RECEIPTS.items():
        reader = _read_receipt(sent | more)
        assert (reader.data_fee, reader.has_operator_fee) == (data_fee, has_operator_fee), name
        assert reader.gas_used == int(sent["gasUsed"], 16)
