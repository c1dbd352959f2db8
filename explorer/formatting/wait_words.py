"""Sentences about waits on pages, with names of chains, amounts in whole units, and grouped digits."""

from config.chain_names import chain_name
from explorer.formatting.amounts import cost, limit
from queries.waits import WaitReason, Words


class PageWords(Words):
    """The formats of values in pages' sentences."""

    def chain(self, chain_id: int) -> str:
        return chain_name(chain_id).in_words

    def number(self, number: int) -> str:
        return f"{number:,}"

    def wei(self, wei: int, chain_id: int, *, is_cost: bool) -> str:
        return f"{cost(wei) if is_cost else limit(wei)} {chain_name(chain_id).currency}"


def in_words(reason: WaitReason | str) -> str:
    """Return the sentence of a reason. A string stays unchanged."""
    return PageWords().sentence(reason) if isinstance(reason, WaitReason) else reason
