"""How much a batch, a user, a client address and all connections may take."""

from config.environment import env_int

# Of one batch. Queries are counted as accounts, slots and headers, here and below.
MAX_BODY_BYTES = DATA_UPLOAD_MAX_MEMORY_SIZE = env_int("MAX_BODY_BYTES", 4 * 1024 * 1024, minimum=1024)
# Files of forms are part of a body, and are read in memory: nothing of a request is written to disk.
FILE_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
MAX_QUERIES_PER_BATCH = env_int("MAX_QUERIES_PER_BATCH", 10_000, minimum=1)
# ENS names, each counted once. They are resolved while the client waits.
MAX_NAMES_PER_BATCH = env_int("MAX_NAMES_PER_BATCH", 50)
# How far above the head a block may be for a batch to wait for it, in blocks.
MAX_BLOCKS_AHEAD = env_int("MAX_BLOCKS_AHEAD", 64)
# Of one user in a minute. The largest batch must fit.
MAX_BATCHES_PER_MINUTE = env_int("MAX_BATCHES_PER_MINUTE", 60, minimum=1)
MAX_QUERIES_PER_MINUTE = env_int("MAX_QUERIES_PER_MINUTE", 3 * MAX_QUERIES_PER_BATCH, minimum=MAX_QUERIES_PER_BATCH)
# What one user may have open at a time.
MAX_OPEN_BATCHES = env_int("MAX_OPEN_BATCHES", 1000, minimum=1)
MAX_OPEN_QUERIES = env_int("MAX_OPEN_QUERIES", 100_000, minimum=1)
MAX_OPEN_BLOCKS = env_int("MAX_OPEN_BLOCKS", 20_000, minimum=1)
# Gas that one user's batches may cause in any 24 hours on destinations that are not test networks.
DAILY_GAS_BUDGET = env_int("DAILY_GAS_BUDGET", 50_000_000)
# Sign-ins that one client address starts in a minute.
MAX_SIGN_INS_PER_MINUTE = env_int("MAX_SIGN_INS_PER_MINUTE", 20, minimum=1)
