"""Decode answers and errors of the registry."""

import pytest
from eth_utils.crypto import keccak

from proving.registries.deployments import revert_reason

UNKNOWN_BLOCK = keccak(text="UnknownBlock(uint256)")[:4]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (UNKNOWN_BLOCK + (77).to_bytes(32), "UnknownBlock(77)"),
        # A node may return such an answer, although no contract does.
        (UNKNOWN_BLOCK + bytes(31), "reverted without a reason"),
        (keccak(text="NotAnAttester(address)")[:4] + b"\xff" * 32, "reverted without a reason"),
        (b"\x01\x02\x03\x04" + bytes(32), "reverted without a reason"),
        (b"", "reverted without a reason"),
    ],
    ids=["whole", "cut", "no address", "another error", "empty"],
)
def test_a_refusal_is_read_by_the_name_of_its_error(data, sentence):
    assert str(revert_reason(data)) == sentence
