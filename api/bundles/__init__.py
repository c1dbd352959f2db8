"""Proof bundles: files that have everything needed to check facts, without this service or a network.

A bundle is a JSON object about a whole batch or one of its queries. Binary values are 0x-prefixed hex. Numbers are
decimal strings, like chain ids in the API.

- `blocks` has each block once. `header` is the RLP of the block's header, whose keccak-256 is `blockHash`. `nextHeader`
  is null, because clients of 0.4.0 need the name. In bundles of 0.4.0 it may be the RLP of the next header. That shows
  that the block was the latest at a query's time, which later bundles don't prove.
- `nodes` has each trie node of all proofs once, because proofs share most of their nodes.
- `queries` has the queries of the batch in the order of their `number`, from 1, or the single query. `block` is an
  index into `blocks`, from 0. `selector` is the request's selection of the block, and `name` the ENS name of the
  account in the request, or null. A bundle doesn't prove what block and account these stand for. `account` is null if
  the query is about the header. `accountProof` has indexes into `nodes`, for the nodes from the header's state root to
  the account (EIP-1186, `accountProof`). `facts` has the words in the facts registry by property, of the account or
  the header. `slots` has the `word` of each storage slot, and as `proof` the indexes of the nodes from the account's
  storage root to the slot (EIP-1186, `storageProof`). `timestamp` is null unless the block was selected by a time.
- A query about a transaction has no account, and `transaction`: its `index` in the block, and its `hash` where
  `transactionProof` shows it. `receiptProof` has the indexes of the nodes from the header's root of receipts to the
  receipt, or null where nothing of it is asked. `transactionProof` has those from the root of transactions to the
  transaction, if its HASH is asked or the request names it by its hash. Both tries have the RLP of the index as key.
  `facts` has the words of the receipt's properties, and of HASH. `logs` has each log by its index within the receipt:
  its `word`, `emitter`, `topics` and `data`. Of other queries these are null, and `logs` is empty.
"""

FORMAT = "facts-3"


class Changed(Exception):
    """The batch was rolled back, or its proofs were removed, while its bundle was written.

    The written part is invalid.
    """
