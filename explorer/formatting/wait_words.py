"""Sentences about waits on pages, with names of chains, amounts in whole units, and grouped digits."""

from collections.abc import Mapping

from config.chain_names import chain_name
from config.configured_chains import get_chains
from explorer.formatting.amounts import cost, limit
from explorer.formatting.estimated_times import lasting
from queries.waits import SENTENCES, Value, WaitReason, Words

# Pages say for how long a block is waited for.
_WAIT_SENTENCES: Mapping[str, str] = {
    "block_to_come": "Waiting for block {block} of {chain:chain}, now {head}{block_wait}.{last:last}",
}


class PageWords(Words):
    """The formats of values in pages' sentences."""

    def template(self, code: str) -> str:
        return _WAIT_SENTENCES.get(code, SENTENCES[code])

    def values(self, reason: WaitReason) -> Mapping[str, Value]:
        values = dict(reason.values)
        if reason.code == "block_to_come":
            values["block_wait"] = _block_wait(values)
        return values

    def chain(self, chain_id: int) -> str:
        return chain_name(chain_id).in_words

    def number(self, number: int) -> str:
        return f"{number:,}"

    def wei(self, wei: int, chain_id: int, *, is_cost: bool) -> str:
        return f"{cost(wei) if is_cost else limit(wei)} {chain_name(chain_id).currency}"


def in_words(reason: WaitReason | str) -> str:
    """Return the sentence of a reason. A string stays unchanged."""
    return PageWords().sentence(reason) if isinstance(reason, WaitReason) else reason


def _block_wait(values: Mapping[str, Value]) -> str:
    """Return words for the time until a block comes. Empty: the chain's pace isn't known."""
    match values:
        case {"chain": int(chain_id), "block": int(block), "head": int(head)} if chain_name(chain_id).is_configured:
            seconds = (block - head) * get_chains().chain(chain_id).block_seconds
            return f", about {lasting(seconds).removeprefix('about ')}" if seconds > 0 else ""
    return ""
