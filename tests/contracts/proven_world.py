"""Facts of one block, proven in a registry, and the proofs that show them."""

from collections.abc import Sequence

import rlp
from eth_utils.crypto import keccak

from chains.contract_artifacts import NO_CONTRACT
from chains.tries.packed import AccountToProve
from chains.tries.packed import encode as pack
from chains.tries.packed_entries import encode_receipts, encode_transactions
from chains.tries.packed_entries import root as root_of
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.blocks import Outcome
from tests.contracts.deployed import Deployed
from tests.contracts.walks import receipt_nodes, receipt_trie

CHAIN, BLOCK, TIME = 10, 1234, 1_700_000_000
SOMEONE, NOBODY = "0x" + "a1" * 20, "0x" + "b0" * 20
SLOT, ZERO_SLOT, OTHER_SLOT = (number.to_bytes(32) for number in (5, 6, 7))
STORAGE = tries.leaf(keccak(SLOT), tries.encode(77))
CODE = b"\x0c" * 32
STATE = tries.leaf(keccak(bytes.fromhex(SOMEONE[2:])), tries.account(3, 2**200, keccak(STORAGE), CODE))
ROOT = keccak(STATE)
LOGS = [(b"\xaa" * 20, [b"\x01" * 32, b"\x02" * 32], b"data"), (b"\xbb" * 20, [], b"\x05")]
# The second one is as before Byzantium.
RECEIPTS = [Outcome(1, 2, 50_000, LOGS), Outcome(b"\x11" * 32, 0, 71_000, [])]
VALUES = [receipt.encode() for receipt in RECEIPTS]
TRANSACTIONS = [b"\x02" * 100, b"\x03" * 100]
# Its timestamp is zero, and that of the block after it TIME.
HEADER = tries.header(BLOCK, ROOT, roots=(root_of(TRANSACTIONS), root_of(VALUES)))
_FIELDS = list(map(bytes, rlp.decode(tries.header(BLOCK + 1, ROOT, keccak(HEADER)))))
FOLLOWING = tries.encode([*_FIELDS[:11], TIME.to_bytes(4), *_FIELDS[12:]])
NO_CODE = tries.EMPTY_CODE_HASH


def shown_receipt(index: int, values: Sequence[bytes] = VALUES) -> bytes:
    return tries.encode(receipt_nodes(receipt_trie(dict(enumerate(values))), index))


def new_registry(chain: DevChain, chain_id: int = CHAIN) -> Deployed:
    """Return a registry in which the facts above are proven."""
    source = Deployed(chain, "test/SettableBlockHashSource", chain_id)
    registry = Deployed(chain, "FactsRegistry", chain_id, source.address, 8191, NO_CONTRACT)
    source.send("set", BLOCK, keccak(HEADER))
    source.send("set", BLOCK + 1, keccak(FOLLOWING))
    accounts = [
        AccountToProve(bytes.fromhex(SOMEONE[2:]), 0b1111, [STATE], {5: [STORAGE], 6: [STORAGE]}),
        AccountToProve(bytes.fromhex(NOBODY[2:]), 0b1111, [STATE], {}),
    ]
    registry.send_raw(pack(HEADER, ROOT, accounts, header_fields=[0, 4, 5, 6, 11, 12, 14]))
    registry.send_raw(encode_receipts(BLOCK, VALUES, {0: [0]}, [0, 1, 2]))
    registry.send_raw(encode_transactions(BLOCK, TRANSACTIONS, [0]))
    registry.send("proveTimestamp", HEADER, FOLLOWING, TIME - 1)
    return registry
