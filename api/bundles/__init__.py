"""Proof bundles: files with all that is needed to check facts, without this service or a network.

A bundle is a JSON object, of a whole batch or of one of its queries. Binary values are 0x-prefixed hex; numbers are
decimal strings, as chain ids in the API.

- `blocks` has each block once. `header` is the block header's RLP, whose keccak-256 is `blockHash`. `nextHeader` is the
  RLP of the header after it, where a query names a time: the two show that the block was the latest at that time. It is
  null where it is not stored here; then the bundle does not prove that.
- `nodes` has each trie node of all proofs once. Proofs share most of their nodes.
- `queries` has all queries of the batch in the order of their `number`, from 1, or the only one. `block` is a place in
  `blocks`, from 0. `selector` is what the request named the block by, and `name` the ENS name by which it named the
  account, or null: a bundle doesn't prove what these stood for. `account` is null where the query is about the header.
  `accountProof` has the places in `nodes` of the nodes from the header's state root to the account (EIP-1186,
  `accountProof`). `facts` are the words that the facts registry answers, by property: of the account, or of the header.
  `slots` has for each storage slot its `word`, and as `proof` the places of the nodes from the account's storage root
  to the slot (EIP-1186, `storageProof`). `timestamp` is null where the block was named by its number.
"""

FORMAT = "facts-3"
