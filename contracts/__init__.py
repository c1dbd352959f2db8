"""The contracts: Solidity sources in `src/` and compiled artifacts in `artifacts/`, both committed."""
