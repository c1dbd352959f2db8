"""The history of block hashes that each block's state keeps, in an ordinary contract (EIP-2935)."""

CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"

# How many blocks before its own a state knows, on Ethereum and on chains that took the contract over as it is.
WINDOW = 8191


def slot(number: int, window: int) -> int:
    """Where the hash of block `number` is kept, in the states of the next `window` blocks."""
    return number % window
