"""An attester: a separate process that vouches for block hashes of source chains by its signature."""
