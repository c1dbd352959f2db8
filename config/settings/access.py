"""Who may sign in, use the admin and see lists."""

from config.environment import env_bool, env_list

# Who may sign in: addresses, or * for anyone. Empty means anyone only where no destination costs real money.
ALLOWED_ADDRESSES = env_list("ALLOWED_ADDRESSES")
# Who may use the admin: addresses. They may also sign in and have keys.
OPERATOR_ADDRESSES = env_list("OPERATOR_ADDRESSES")
# Whether everybody may see the list of everybody's batches. A batch's page needs its link either way.
PUBLIC_BATCH_LIST = env_bool("PUBLIC_BATCH_LIST", default=False)
