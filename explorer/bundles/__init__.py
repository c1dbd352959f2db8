"""Proof bundles: files with all that is needed to check facts, without this service or a network.

A bundle is of one query, or of a whole batch. Each is a JSON object. Binary values are 0x-prefixed hex; numbers are
decimal strings, as chain ids in the API.

Of one query (`FORMAT`):

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

Of a batch (`BATCH_FORMAT`) it says the same of each query, and each block and each node once:

- `batch` and `destinationChainId`.
- `blocks`, each with `sourceChainId`, `blockNumber`, `blockHash`, `header`, `nextHeader` and `factsRegistry`.
- `queries`, in the order of their `number`, which is 1 for the first, with none left out. `block` is a place in
  `blocks`. `nodes` are those that no query before it has. `accountProof`, and `proof` of each of the `slots`, are
  places in the nodes of all queries, one after the other. The rest is as above.

So it can be written, and read, query by query: nobody must hold the nodes of 10,000 accounts at once.
"""

FORMAT = "facts-2"
BATCH_FORMAT = "facts-batch-1"
