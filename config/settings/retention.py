"""How long is kept what nobody needs for ever, in days; None: for ever. `proving.pruning` prunes what is older.

What is open, or can still change on a chain, is kept whatever is set here. What users see goes only where an operator
has said so.
"""

from config.environment import env_days, refuse_gone

# Since a batch was done or rejected: the trie nodes of its proofs, and so its proof bundles; and its steps one by one.
KEEP_PROOFS_DAYS = env_days("KEEP_PROOFS_DAYS", None)
KEEP_STEPS_DAYS = env_days("KEEP_STEPS_DAYS", None)
# Since a transaction was mined: what was sent, of final ones. The chain has it too.
KEEP_CALLDATA_DAYS = env_days("KEEP_CALLDATA_DAYS", 90)
# Since a path passed them: headers of blocks that nobody asked for. That paths may begin there is kept for ever.
KEEP_PATH_HEADERS_DAYS = env_days("KEEP_PATH_HEADERS_DAYS", None)
# Since it was last used: what old blocks are proven by. It can be had again.
KEEP_BEACON_DATA_DAYS = env_days("KEEP_BEACON_DATA_DAYS", 90)
# Since they happened.
KEEP_ACCOUNT_EVENTS_DAYS = env_days("KEEP_ACCOUNT_EVENTS_DAYS", 90)
# Since webhooks were delivered, or given up: what was sent; and since the batch ended, where to.
KEEP_WEBHOOK_DELIVERIES_DAYS = env_days("KEEP_WEBHOOK_DELIVERIES_DAYS", 30)
# Since they were sent with a submission.
KEEP_IDEMPOTENCY_KEYS_DAYS = env_days("KEEP_IDEMPOTENCY_KEYS_DAYS", 1)

refuse_gone("KEEP_SESSIONS_DAYS", "ended sessions are kept for one day.")
refuse_gone("KEEP_SIGN_IN_NONCES_DAYS", "nonces are kept for one day.")
refuse_gone("KEEP_THROTTLE_COUNTS_DAYS", "counts of requests are kept for one day.")
