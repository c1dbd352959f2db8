"""The history of block hashes that each block's state holds in a contract (EIP-2935)."""

CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"

# How many earlier blocks a state knows, on Ethereum and on chains that use the same contract.
WINDOW = 8191


def slot(number: int, window: int) -> int:
    """Return the storage slot of the hash of block `number`, in the states of the next `window` blocks."""
    return number % window
