"""Sign in with Ethereum (EIP-4361): `start` hands out a message, and `finish` takes it signed and returns the user.

A message's content comes from settings, never from the request. The address's own key signs it, or a contract wallet
(ERC-1271, or ERC-6492 before its deployment), which is called through the chain's RPC nodes. Others may control the
same address on another chain. So a contract wallet is a separate user for each chain, and never the user who signs with
the address's own key.
"""

import math
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from importlib import import_module
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from accounts import keys, throttle
from accounts.models import SignInNonce, User, may_sign_in, user_name
from chains.chains_file import Chain, UnknownChain
from chains.encoding import checksummed, fault
from config.configured_chains import get_chains
from config.error_answers import Refused

# Importing these takes a second, mostly for grammars and web3. The web server imports them before its first request,
# and commands never wait for them.
siwe: Any = SimpleLazyObject(lambda: import_module("siwe"))
contract_wallets: Any = SimpleLazyObject(lambda: import_module("accounts.contract_wallets"))
_SiweMessage = Any

STATEMENT = "Sign in to Batch Query Service. This costs nothing and sends no transaction."

# How long a message is valid.
MESSAGE_SECONDS = 10 * 60
MAX_MESSAGE_CHARS = 1024
MAX_SIGNATURE_CHARS = 16_384  # An ERC-6492 signature holds the wallet's whole deployment.
# Maximum checks of contract wallets: per message and minute, and at once in a process.
_CHECKS_PER_MINUTE, _CHECKS_AT_ONCE = 5, 2
_BUSY_RETRY_SECONDS = 5

# A nonce from further in the future than this was created while the clock was ahead.
_CLOCK_SKEW = timedelta(minutes=1)

_SIGNER = re.compile(r"\A[^\n]+\n(0x[0-9a-fA-F]{40})\n")
_NONCE = re.compile(r"\nNonce: ([0-9a-zA-Z]{8,40})\n")
# 0x alone is valid: it means that the contract wallet has stored the signature.
_SIGNATURE = re.compile(r"0[xX](?:[0-9a-fA-F]{2})*|(?:[0-9a-fA-F]{2})+")
# The signature in the JSON that MyEtherWallet, MyCrypto and others show.
_SIGNATURE_IN_JSON = re.compile(r'\{.*"sig(?:nature)?"\s*:\s*"([^"]*)"', re.DOTALL)
# Whitespace, quotes and invisible characters, which are often copied with a signature.
_AROUND_DIGITS = re.compile("[\\s\"'`\u2018\u2019\u201c\u201d\u200b-\u200f\u2060\ufeff]+")

_checks = BoundedSemaphore(_CHECKS_AT_ONCE)

_NOT_OURS = "was not made by this service, or was changed"


class SignInError(Refused):
    """A sign-in was refused."""


class UndecidedSignature(SignInError):
    """The signature couldn't be checked. The message stays valid."""


def start(address: str, chain_id: int, client_address: str) -> str:
    """Create the message for `address` to sign, valid for `MESSAGE_SECONDS` and one sign-in.

    Raises `SignInError`: malformed_address, unknown_chain, address_not_allowed, too_many_sign_ins.
    """
    signer = checksummed(address)
    if signer is None:
        raise SignInError("malformed_address", f"This {fault(address)}.")
    _chain(chain_id)
    # Only the signature will tell whether the own key or a contract wallet signs.
    if not may_sign_in(user_name(signer, chain_id)):
        _check_allowed(signer)
    _count(client_address)
    now = timezone.now()
    expires_at = now + timedelta(seconds=MESSAGE_SECONDS)
    base = urlsplit(settings.BASE_URL)
    nonce = siwe.generate_nonce()
    message = siwe.SiweMessage(
        scheme=base.scheme,
        domain=base.netloc,
        address=signer,
        statement=STATEMENT,
        uri=settings.BASE_URL,
        version="1",
        chain_id=chain_id,
        nonce=nonce,
        issued_at=siwe.ISO8601Datetime.from_datetime(now),
        expiration_time=siwe.ISO8601Datetime.from_datetime(expires_at),
    )
    text = str(message.prepare_message())
    _store(
        SignInNonce(
            nonce=nonce,
            address=signer,
            message_hash=_hash(text),
            created_at=now,
            expires_at=expires_at,
        )
    )
    return text


def finish(message: str, signature: str) -> User:
    """Return the user who signed the message. The first sign-in creates the user and a first key.

    The nonce is consumed before any slow step, and restored only if the signature couldn't be checked. So each message
    signs in only once. Raises `SignInError`: malformed_message, malformed_signature, unknown_nonce, wrong_domain,
    unknown_chain, expired, wrong_signature, node_unavailable, too_many_checks, too_many_sign_ins,
    address_not_allowed.
    """
    signature = _plain_signature(signature)
    issued = _consume_nonce(message)
    try:
        chain_id = _verify(message, signature, issued)
    except UndecidedSignature:
        SignInNonce.objects.filter(pk=issued.pk).update(consumed_at=None)
        raise
    with transaction.atomic():
        user = User.objects.for_address(issued.address, chain_id)
        user.last_sign_in = timezone.now()
        user.save(update_fields=["last_sign_in"])
        keys.issue_first(user)
    return user


def minutes_left(message: str) -> int:
    """Return the minutes for which the message is still valid. 0: it expired, was used, or isn't one of ours."""
    now = timezone.now()
    ends = SignInNonce.objects.filter(message_hash=_hash(message), expires_at__gt=now, consumed_at=None).first()
    return math.ceil((ends.expires_at - now).total_seconds() / 60) if ends else 0


def _chain(chain_id: int) -> Chain:
    try:
        return get_chains().chain(chain_id)
    except UnknownChain:
        raise SignInError("unknown_chain", "This service is not configured for that chain.") from None


def _check_allowed(address: str) -> None:
    if not may_sign_in(address):
        raise SignInError("address_not_allowed", f"{address} may not sign in here. Ask the operator to allow it.")


# --- Nonces -----------------------------------------------------------------------------------------------------------


def _count(client_address: str) -> None:
    """Count a started sign-in of the client. Raises `SignInError`: too_many_sign_ins."""
    if seconds := throttle.take("sign-ins", client_address, settings.MAX_SIGN_INS_PER_MINUTE):
        raise SignInError(
            "too_many_sign_ins",
            "Too many sign-ins were started from your network. Wait a minute, then try again.",
            retry_after=seconds,
        )


def _store(issued: SignInNonce) -> None:
    """Store the nonce, and delete expired ones."""
    now = issued.created_at
    with transaction.atomic():
        useless = SignInNonce.objects.filter(Q(expires_at__lte=now) | Q(created_at__gt=now + _CLOCK_SKEW))
        useless.delete()
        issued.save()


def _hash(message: str) -> str:
    """Return the SHA-256, in hex."""
    return sha256(message.encode(errors="surrogatepass")).hexdigest()


def _consume_nonce(message: str) -> SignInNonce:
    """Consume the nonce that was issued for the message's address. Only one of two simultaneous calls gets it.

    The parser is slow on hostile text. So it runs later, and only on messages with one of our nonces.
    """
    signer, nonce = _SIGNER.match(message), _NONCE.search(message)
    if len(message) > MAX_MESSAGE_CHARS or not signer or not nonce or not message.isascii():
        raise SignInError("malformed_message", f"The message {_NOT_OURS}.")
    address = checksummed(signer[1])
    now = timezone.now()
    consumed = SignInNonce.objects.filter(
        nonce=nonce[1], address=address or "", expires_at__gt=now, consumed_at=None
    ).update(consumed_at=now)
    if not address or not consumed:
        raise SignInError(
            "unknown_nonce",
            "The message was already used, has expired, or belongs to another address. Ask for a new one.",
        )
    return SignInNonce.objects.get(nonce=nonce[1])


# --- Verification -----------------------------------------------------------------------------------------------------


def _plain_signature(text: str) -> str:
    """Return the signature as 0x and hex digits, from any form that wallets show. Raises `SignInError`."""
    within_bounds = text.strip()[: 2 * MAX_SIGNATURE_CHARS]
    in_json = _SIGNATURE_IN_JSON.match(within_bounds)
    digits = _AROUND_DIGITS.sub("", in_json[1] if in_json else within_bounds)
    if len(digits) > MAX_SIGNATURE_CHARS or not _SIGNATURE.fullmatch(digits):
        raise SignInError("malformed_signature", "The signature must be pairs of hex digits, with or without 0x.")
    return f"0x{digits[2:] if digits[1:2] in {'x', 'X'} else digits}"


def _verify(message: str, signature: str, issued: SignInNonce) -> int | None:
    """Check that the message is the one that was issued, and that its address signed it and may sign in.

    Return the chain of the contract wallet that signed; None if the address's own key did. Raises `SignInError`.
    """
    # The library takes up to a third of a second for a changed message, and doesn't compare all fields.
    if _hash(message) != issued.message_hash:
        raise SignInError("malformed_message", f"The message {_NOT_OURS}.")
    parsed = siwe.SiweMessage.from_message(message)
    chain = _chain(parsed.chain_id)
    verify = _verifier(parsed, issued.nonce, chain)
    if _is_of_own_key(partial(verify, signature)):
        _check_allowed(issued.address)
        return None
    name = user_name(issued.address, chain.id)
    if not may_sign_in(name):
        raise SignInError(
            "address_not_allowed",
            f"The signature does not belong to {issued.address} itself, and a contract wallet there may not sign in "
            f"here. "
            f"Ask the operator to allow {name}.",
        )
    _verify_contract_wallet(verify, signature, issued, chain)
    return chain.id


def _verifier(parsed: _SiweMessage, nonce: str, chain: Chain) -> Callable[..., None]:
    """Return a function that checks the message and its signature. With a `provider`, it also asks contract wallets."""
    base = urlsplit(settings.BASE_URL)
    return partial(
        parsed.verify,
        scheme=base.scheme,
        domain=base.netloc,
        nonce=nonce,
        uri=settings.BASE_URL,
        chain_id=chain.id,
        timestamp=timezone.now(),
        strict=True,
    )


def _is_of_own_key(verify: Callable[..., None]) -> bool:
    """Return whether the address's own key signed. No node is asked, so people can sign in while nodes are down."""
    try:
        verify(provider=None)
    except siwe.InvalidSignature:
        return False
    except (siwe.DomainMismatch, siwe.SchemeMismatch):
        raise SignInError("wrong_domain", f"The message must be for {settings.BASE_URL}.") from None
    except (siwe.ExpiredMessage, siwe.NotYetValidMessage):
        raise SignInError("expired", "The message is not valid at this time. Ask for a new one.") from None
    except siwe.VerificationError:
        raise SignInError("malformed_message", f"The message {_NOT_OURS}.") from None
    return True


def _verify_contract_wallet(verify: Callable[..., None], signature: str, issued: SignInNonce, chain: Chain) -> None:
    """Check the signature through the nodes. A check may block a web server's thread for long, so few run at once."""
    if seconds := throttle.take("checks of a message", issued.nonce, _CHECKS_PER_MINUTE):
        raise UndecidedSignature(
            "too_many_sign_ins",
            "This message has had too many signatures. Wait a minute, then try again.",
            retry_after=seconds,
        )
    if not _checks.acquire(blocking=False):
        raise UndecidedSignature(
            "too_many_checks",
            "The service is checking other contract wallets' signatures. The message stays valid: try again in a "
            "moment.",
            retry_after=_BUSY_RETRY_SECONDS,
        )
    try:
        accepts = contract_wallets.accepts(verify, signature, issued.address, chain)
    finally:
        _checks.release()
    if accepts is None:
        raise UndecidedSignature(
            "node_unavailable",
            f"The signature does not belong to {issued.address} itself, and no node of {chain.name} can be asked "
            f"whether a "
            "contract wallet accepts it. The message stays valid: correct the signature, or try again later.",
        )
    if not accepts:
        raise SignInError(
            "wrong_signature",
            f"The signature is neither that of {issued.address} nor accepted by a contract wallet there.",
        )
