"""An attester: a process of its own that vouches for block hashes of source chains by signature."""
