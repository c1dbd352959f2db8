"""The fields of a transaction that a signer must sign, and the check of what a signing service has signed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eth_account import Account
from eth_keys.exceptions import BadSignature
from eth_utils.address import to_canonical_address

from chains.encoding import HIGHEST_S, Item, decode_rlp, hex_data, read_integer, shortest

# The order in a signed transaction (EIP-1559). Names are those of JSON-RPC.
_NAMES = ("chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "data", "accessList")
_TYPE = b"\x02"
# Maximum signed bytes beside the calldata, and more than any. Decoding a megabyte of short items would take seconds.
_MOST_BESIDE = 1000


@dataclass(frozen=True)
class TransactionFields:
    """A transaction of type 2 (EIP-1559) without value and access list. Fees are in wei per gas."""

    sender: str
    """EIP-55."""
    chain_id: int
    nonce: int
    max_priority_fee_per_gas: int
    max_fee_per_gas: int
    gas: int
    to: str
    """EIP-55; empty: it creates a contract."""
    data: bytes

    def for_account(self) -> Mapping[str, Any]:
        """Return the fields as `eth_account` takes them."""
        fields = {
            "type": 2,
            "chainId": self.chain_id,
            "nonce": self.nonce,
            "gas": self.gas,
            "maxFeePerGas": self.max_fee_per_gas,
            "maxPriorityFeePerGas": self.max_priority_fee_per_gas,
            "value": 0,
            "data": self.data,
        }
        return {**fields, **({"to": self.to} if self.to else {})}

    def for_service(self) -> Mapping[str, str]:
        """Return the fields as `eth_signTransaction` takes them."""
        fields = {name: hex(value) for name, value in self.for_account().items() if isinstance(value, int)}
        # Every known service reads `data`. Some don't know `input`.
        return {"from": self.sender, **fields, "data": hex_data(self.data), **({"to": self.to} if self.to else {})}

    def require_signed(self, raw: bytes) -> None:
        """Raise `ValueError` unless these are exactly the fields, signed by the sender in the form that nodes accept.

        The message is a phrase, such as "a signature of another account".
        """
        if len(raw) > len(self.data) + _MOST_BESIDE:
            raise ValueError(f"{len(raw)} bytes, too many for the requested transaction")
        try:
            items = decode_rlp(raw[1:])
        except ValueError:
            items = b""
        if raw[:1] != _TYPE or not isinstance(items, list) or len(items) != len(_NAMES) + 3:
            raise ValueError("something that is not a signed transaction of type 2")
        if differing := [
            name for name, own, signed in zip(_NAMES, self._items(), items, strict=False) if own != signed
        ]:
            raise ValueError(f"another transaction than the requested one: {', '.join(differing)}")
        try:
            parity, r, s = (read_integer(item, 32) for item in items[len(_NAMES) :])
        except ValueError:
            raise ValueError("a signature that is not canonical") from None
        if parity > 1 or not r or not 0 < s <= HIGHEST_S:
            raise ValueError("a signature that nodes refuse, for example with the higher of its two s values")
        try:
            sender: str = Account.recover_transaction(raw)
        except (BadSignature, ValueError):
            sender = ""
        if sender != self.sender:
            raise ValueError("a signature of another account, or of another transaction")

    def _items(self) -> list[Item]:
        """Return the encoded fields, in the order of `_NAMES`."""
        numbers = (self.chain_id, self.nonce, self.max_priority_fee_per_gas, self.max_fee_per_gas, self.gas)
        return [*map(shortest, numbers), to_canonical_address(self.to) if self.to else b"", b"", self.data, []]
