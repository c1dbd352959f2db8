"""Proof bundles: files with all that is needed to check the facts of one query, without this service or a network.

A JSON object. Binary values are 0x-prefixed hex; numbers are decimal strings, as chain ids in the API.

- `selector` is what the request named the block by, and `name` the ENS name by which it named the account, or null. A
  bundle doesn't prove what these stood for.
- `header` is the block header's RLP, whose keccak-256 is `blockHash`.
- `account`, or null where the query is about the header. `accountProof` are the nodes of the state trie from the
  header's state root to the account (EIP-1186, `accountProof`).
- `facts` are the words that the facts registry answers, by property: of the account, or of the header.
- `slots` has for each storage slot its `word`, and as `proof` the places (from 0) in `storageNodes` of the nodes of the
  storage trie from the account's storage root to the slot (EIP-1186, `storageProof`). Proofs share most of their nodes.
- `timestamp`, or null where the block was named by its number. `nextHeader` is the RLP of the header after the block's:
  the two show that the block was the latest at that time. It is null where it is not stored here; then a bundle does
  not prove that.
"""

FORMAT = "facts-2"
