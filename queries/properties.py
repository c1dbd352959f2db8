"""The properties of accounts and headers that can be proven, by the numbers that the facts registry gives them."""

from django.db import models


class AccountField(models.IntegerChoices):
    """The properties of an account, numbered as in the facts registry."""

    NONCE = 0
    BALANCE = 1
    STORAGE_ROOT = 2
    CODE_HASH = 3


class HeaderField(models.IntegerChoices):
    """The properties of a header, numbered by their place in its RLP (Yellow Paper, section 4.3, and later EIPs)."""

    PARENT_HASH = 0
    UNCLES_HASH = 1
    COINBASE = 2
    STATE_ROOT = 3
    TRANSACTIONS_ROOT = 4
    RECEIPTS_ROOT = 5
    LOGS_BLOOM = 6  # its fact is the keccak-256 of its bytes
    DIFFICULTY = 7
    BLOCK_NUMBER = 8
    GAS_LIMIT = 9
    GAS_USED = 10
    TIMESTAMP = 11
    EXTRA_DATA = 12  # as LOGS_BLOOM
    MIX_HASH = 13
    NONCE = 14
    BASE_FEE_PER_GAS = 15
    WITHDRAWALS_ROOT = 16
    BLOB_GAS_USED = 17
    EXCESS_BLOB_GAS = 18
    PARENT_BEACON_BLOCK_ROOT = 19
    REQUESTS_HASH = 20
