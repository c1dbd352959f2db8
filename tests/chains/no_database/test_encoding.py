import tracemalloc

import pytest

from chains.encoding import checksummed, is_address

# Examples from EIP-55.
ADDRESSES = [
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x27b1fdb04752bbc536007a920d24acb045561c26",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_gets_its_checksum(address):
    assert checksummed(address) == address
    assert checksummed(address.lower()) == address
    assert checksummed("0x" + address[2:].upper()) == address


def test_an_address_with_a_wrong_checksum_is_read_as_none():
    for address in ADDRESSES[4:]:
        assert checksummed("0x" + address[2:].swapcase()) is None
        assert not is_address("0x" + address[2:].swapcase())


def test_only_a_checksum_needs_a_hash(monkeypatch):
    assert all(map(is_address, ADDRESSES))
    monkeypatch.setattr("eth_hash.auto.keccak", lambda _: pytest.fail("There is no checksum."))
    for address in ADDRESSES:
        assert is_address(address.lower())
        assert is_address("0x" + address[2:].upper())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "1" * 40,
        "0X" + "1" * 40,
        "0x" + "1" * 39,
        "0x" + "1" * 41,
        "0x" + "1" * 64,
        "0x" + "g" * 40,
        "0x" + "1" * 40 + "\n",
        " 0x" + "1" * 40,
        "0x" + "\N{ARABIC-INDIC DIGIT ONE}" * 40,
    ],
)
def test_checksummed_returns_none_for_an_invalid_address(text):
    assert checksummed(text) is None
    assert not is_address(text)


def test_long_texts_that_are_no_addresses_are_not_kept():
    tracemalloc.start()
    for number in range(100):
        assert checksummed(f"0x{number}{'a' * 100_000}") is None
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
