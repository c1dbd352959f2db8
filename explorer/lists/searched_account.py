"""The account that a reader searches for, by its address or its ENS name."""

import re
from dataclasses import dataclass
from typing import Self

from accounts import read_rate
from chains.encoding import checksummed
from config.configured_chains import get_chains
from queries import ens_names
from queries.ens_names import Account, NoAccount

NUMBER, HASH = re.compile(r"[0-9]{1,18}", re.ASCII), re.compile(r"0x[0-9a-f]{64}", re.IGNORECASE | re.ASCII)
"""A search may also be a block's number, or the hash of a block or a transaction."""

_ADDRESS = re.compile(r"0x[0-9a-f]{40}", re.IGNORECASE | re.ASCII)
_PROBLEM_SENTENCES = {
    "no_account": "The name {name} {reason}.",
    "names_unavailable": "The name {name} can't be resolved now. Try again in a moment.",
    "too_many_requests": "Your network has sent too many reads. Try again in {seconds} s.",
}
_STATUS_BY_CODE = {"no_account": 400, "names_unavailable": 503, "too_many_requests": 429}


@dataclass(frozen=True)
class SearchedAccount:
    address: str = ""  # with its EIP-55 checksum; empty: there is none
    name: str = ""  # the normalized ENS name that was searched
    problem: str = ""  # a sentence that says why there is no address
    status: int = 200  # the HTTP status of an answer that needs the address

    @classmethod
    def unknown(cls, code: str, **values: object) -> Self:
        return cls(problem=_PROBLEM_SENTENCES[code].format(**values), status=_STATUS_BY_CODE[code])


def read(text: str, client_address: str) -> SearchedAccount | None:
    """Return the account. None: the text is neither an address nor a name, or it is a name and ENS isn't configured.

    Resolving a name costs requests to nodes, so the number per client and minute is limited.
    """
    if _ADDRESS.fullmatch(text):
        # A request with a wrong checksum is an error. A search needs only the digits.
        return SearchedAccount(str(checksummed(text.lower())))
    if get_chains().ens is None or not ens_names.is_name(text):
        return None
    if seconds := read_rate.count(client_address):
        return SearchedAccount.unknown("too_many_requests", seconds=seconds)
    try:
        match ens_names.resolve_names([text], get_chains())[text]:
            case Account(address, name):
                return SearchedAccount(address, name)
            case NoAccount(because):
                return SearchedAccount.unknown("no_account", name=text, reason=because)
    except ens_names.NamesUnavailable:
        return SearchedAccount.unknown("names_unavailable", name=text)
