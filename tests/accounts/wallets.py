"""Wallets of the tests' users, and contract wallets in hand-written bytecode."""

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from devnet.devchain import ACCOUNTS

ALICE: LocalAccount = Account.from_key(ACCOUNTS[0][1])
BOB: LocalAccount = Account.from_key(ACCOUNTS[1][1])


def sign(message: str, wallet: LocalAccount) -> str:
    return wallet.sign_message(encode_defunct(text=message)).signature.to_0x_hex()


def contract_wallet_code(owner: str) -> bytes:
    """Return code of a contract that answers ERC-1271's `isValidSignature(hash, r s v)`: the magic value if `owner`
    signed.

    It copies hash, v, r and s from the call data to memory, calls ecrecover (the precompile at address 1), compares the
    result with the owner, and returns the magic value times the comparison.
    """
    return bytes.fromhex(
        "6004355f52"  # memory[0x00] = hash
        "60a4355f1a602052"  # memory[0x20] = v
        "606435604052"  # memory[0x40] = r
        "608435606052"  # memory[0x60] = s
        "6020608060805f60015afa50"  # memory[0x80] = ecrecover(memory[0x00:0x80])
        f"60805173{owner[2:]}14"  # compare with the owner
        "631626ba7e60e01b02"  # multiply by the magic value, which is left-aligned in its word
        "5f5260205ff3"  # return the product
    )


def init_code(code: bytes) -> bytes:
    """Return creation code for a contract with the runtime code `code` (up to 255 bytes)."""
    return bytes.fromhex(f"60{len(code):02x}8060095f395ff3") + code


def reverting_code(data: bytes) -> bytes:
    """Return the code of a contract that reverts every call with `data` (up to 64 kB)."""
    size = f"{len(data):04x}"
    return bytes.fromhex(f"61{size}600c5f3961{size}5ffd") + data
