"""Template filters and tags that format times, amounts, states and long hexadecimal values."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from typing import Any

from django import template
from django.conf import settings
from django.templatetags.static import static
from django.urls import get_script_prefix, reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from config.chain_names import ChainName, chain_name
from explorer.batch.fact_display import InShort
from explorer.batch.log_display import DecodedValue
from explorer.formatting import slot_words
from explorer.formatting.amounts import cost, gas_price, limit, whole_units
from explorer.formatting.estimated_times import lasting, roughly
from explorer.formatting.slot_words import ADDRESS_ENDS, MOST_OF_KEY
from explorer.formatting.utc_times import iso
from explorer.formatting.wait_words import in_words
from queries.waits import WaitReason

register = template.Library()

register.filter("whole_units", whole_units)
register.filter("cost", cost)
register.filter("gwei", gas_price)
register.filter("limit", limit)
register.filter("chain", chain_name)
register.filter("iso", iso)
register.filter("roughly", roughly)
register.filter("lasting", lasting)

_MINUTE = timedelta(minutes=1)


def html(template: str, *values: str) -> SafeString:
    """Do the same as Django's `format_html` in a tenth of the time, because a page has hundreds of values."""
    # Letters and digits, such as an address, need no escape.
    texts = [each if isinstance(each, SafeString) or each.isalnum() else escape(each) for each in values]
    return SafeString(template.format(*texts))


# --- Times ------------------------------------------------------------------------------------------------------------


@register.filter
def moment(when: datetime) -> SafeString:
    """Return a `<time>` element that shows seconds, in UTC. Its attribute has the exact time."""
    return html('<time datetime="{}">{}\xa0UTC</time>', iso(when), when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))


@register.filter
def clock(when: datetime) -> SafeString:
    """Return a `<time>` element like `moment`, with only the time of day."""
    return html('<time datetime="{}">{}</time>', iso(when), when.astimezone(UTC).strftime("%H:%M:%S"))


@register.filter
def span(duration: timedelta) -> str:
    """Return a duration in its two largest units, such as `4.2 s`, `3 min 20 s` or `2 h`."""
    if duration < _MINUTE:
        return f"{max(0.0, duration.total_seconds()):.1f} s"
    return _whole_span(duration)


def _whole_span(duration: timedelta) -> str:
    """Return a duration like `span`, in whole seconds, with days as the largest unit.

    times.js updates the texts in the same format.
    """
    s = max(0, int(duration.total_seconds()))
    parts = [(s // 86_400, "d"), (s // 3600 % 24, "h"), (s // 60 % 60, "min"), (s % 60, "s")]
    first = next((at for at, (count, _) in enumerate(parts) if count), 0)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


@register.filter
def ago(when: datetime) -> SafeString:
    """Return how long ago the time was, such as `8 s ago`. The browser updates it."""
    return html('<span data-since="{}">{}</span> ago', iso(when), _whole_span(timezone.now() - when))


@register.filter
def since(when: datetime) -> SafeString:
    """Return the duration from the time until now. The browser updates it."""
    return html('<span data-since="{}">{}</span>', iso(when), _whole_span(timezone.now() - when))


@register.filter
def until(when: datetime) -> SafeString:
    """Return the remaining duration, such as `in 8 s`, or `now`. The browser updates it."""
    remaining = when - timezone.now()
    text = f"in {_whole_span(remaining)}" if remaining >= timedelta(seconds=1) else "now"
    return html('<span data-until="{}">{}</span>', iso(when), text)


# Seconds until an estimate shows its age. times.js has the same value.
_AGED = 5


@register.filter
def is_aged(when: datetime) -> bool:
    """Return whether the time is at least `_AGED` seconds ago."""
    return (timezone.now() - when).total_seconds() >= _AGED


@register.simple_tag
def server_time() -> str:
    """Return the server's time, by which the browser corrects its clock."""
    return iso(timezone.now())


@register.filter
def grouped(number: int) -> str:
    """Return a number with its digits in groups of three."""
    return f"{number:,}"


# --- States -----------------------------------------------------------------------------------------------------------

# Icons are drawn in a square of 16 units, in the text's colour.
_RING = '<circle cx="8" cy="8" r="6.25"/>'
_DISC = '<circle class="f" cx="8" cy="8" r="7"/>'
_ICONS = {
    "RECEIVED": '<circle cx="8" cy="8" r="6.25" stroke-dasharray="2.2 2.6"/>',
    "ACCEPTED": f'{_RING}<circle class="f" cx="8" cy="8" r="2.25"/>',
    "IN_PROGRESS": f'{_RING}<path class="f spin" d="M8 4a4 4 0 0 1 0 8z"/>',
    "DONE": f'{_DISC}<path class="k" d="m5 8.2 2.1 2.1L11 6.2"/>',
    "REJECTED": f'{_DISC}<path class="k" d="m5.7 5.7 4.6 4.6m0-4.6-4.6 4.6"/>',
    "STOPPED": f'{_RING}<path d="M5 8h6"/>',
    "WENT_BACK": '<path d="M3 6.5h7a3.5 3.5 0 0 1 0 7H6"/><path d="M6 3 2.5 6.5 6 10"/>',
    "WAITING": f'{_RING}<path d="M8 4.5V8l2.5 1.5"/>',
    "PROBLEM": '<path d="M8 2.2 14.3 13H1.7z"/><path d="M8 6.5v3"/><circle class="f" cx="8" cy="11.2" r=".9"/>',
    "TO": '<path d="M3 8h10m-4-4 4 4-4 4"/>',
    "": '<circle cx="8" cy="8" r="4.5"/>',
}
_ICONS["COMPLETED"] = _ICONS["DELIVERED"] = _ICONS["DONE"]
_ICONS["FAILED"], _ICONS["CANCELLED"] = _ICONS["REJECTED"], _ICONS["STOPPED"]
_ICONS["PENDING"] = _ICONS["WAITING"]
# Icons for results of transactions.
_ICONS |= {"ok": _ICONS["DONE"], "fail": _ICONS["REJECTED"], "run": _ICONS["IN_PROGRESS"]}


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return an icon that screen readers skip, because a word is next to it."""
    return mark_safe(  # noqa: S308 (constants of this module)
        f'<svg class="ic" viewBox="0 0 16 16" aria-hidden="true">{_ICONS[name]}</svg>'
    )


@register.simple_tag
def status(name: str, element: str = "span") -> SafeString:
    """Return a state as word, icon and colour. `strong` as the element adds a tint, which a page uses once."""
    return html('<{0} class="chip {1}">{2}{1}</{0}>', element, name, icon(name))


# --- Long values ------------------------------------------------------------------------------------------------------


def _on_explorer(text: SafeString, chain: ChainName | None, kind: str, value: str | int) -> SafeString:
    """Return a text that links to the value's page on the chain's explorer, if the chain has one."""
    url = chain.explorer_page(kind, value) if chain else ""
    return html('<a href="{}" rel="noreferrer">{}</a>', url, text) if url else text


@cache
def _facts_page(_: str) -> str:
    """Return the path of the page of facts, with the installation's prefix. A page has it hundreds of times."""
    return reverse("facts")


@register.simple_tag
def hexadecimal(value: str, what: str, chain: ChainName | None = None, kind: str = "address") -> SafeString:
    """Return a long value and a button that copies it. `what` is the button's name.

    With a `chain`, the value links to its page on the chain's explorer. `kind` is as in `ChainName.explorer_page`.
    """
    text = _on_explorer(html('<span class="hex">{}</span>', value), chain, kind, value)
    return html("{} {}", text, copy(value, what))


@register.simple_tag
def brief(value: str, what: str, chain: ChainName | None = None, kind: str = "address") -> SafeString:
    """Return the same as `hexadecimal`, shortened. Without `what` there is no button."""
    text = _on_explorer(_by_its_ends(value), chain, kind, value)
    return html('<span class="nowrap">{} {}</span>', text, copy(value, what)) if what else text


@register.simple_tag
def account(address: str, what: str, chain: ChainName | None, *, is_short: bool = False) -> SafeString:
    """Return an account that links to its facts, a button that copies it, and a link to the chain's explorer.

    Without `what` there is no button.
    """
    text = _by_its_ends(address) if is_short else html('<span class="hex">{}</span>', address)
    link = html('<a href="{}?account={}">{}</a>', _facts_page(get_script_prefix()), address, text)
    parts = [link, copy(address, what) if what else "", outside_link(chain, "address", address) if chain else ""]
    whole = SafeString(" ".join(filter(None, parts)))
    return html('<span class="nowrap">{}</span>', whole) if is_short else whole


@register.simple_tag
def outside_link(chain: ChainName, kind: str, value: str | int, text: str = "") -> SafeString:
    """Return a link to a page on a chain's explorer, which shows the text and an icon. Empty: there is no explorer."""
    url = chain.explorer_page(kind, value)
    link = '<a class="out" href="{}" rel="noreferrer" aria-label="On the explorer of {}">{}{}</a>'
    return html(link, url, chain.name, text, _OUT) if url else SafeString("")


@register.simple_tag
def block_number(number: int, chain: ChainName | None, what: str = "") -> SafeString:
    """Return a block's number in groups. It links to the block on the chain's explorer. `what` names a copy button."""
    text = _on_explorer(SafeString(f"{number:,}"), chain, "block", number)
    return html('<span class="nowrap">{} {}</span>', text, copy(str(number), what)) if what else text


@register.simple_tag
def short(value: str, start: int = ADDRESS_ENDS[0], end: int = ADDRESS_ENDS[1]) -> SafeString:
    """Return a shortened value, such as 0x7099…79C8.

    The tooltip and a copy have the whole value.
    """
    return html(
        '<span class="short" title="{0}">{1}<span class="mid">{2}</span>{3}</span>',
        value,
        value[:start],
        value[start:-end],
        value[-end:],
    )


def _by_its_ends(value: str) -> SafeString:
    return short(value, *slot_words.ends(value))


@register.simple_tag
def in_short(value: InShort, *, with_note: bool = False) -> SafeString:
    """Return a fact's value with its unit, in short form."""
    unit = value.unit_and_note if with_note else value.unit
    if value.ends:
        whole = short(value.text, *value.ends)
        return html('{}\xa0<span class="unit">{}</span>', whole, unit) if unit else whole
    return html('{}\xa0<span class="unit">{}</span>', value.text, unit) if unit else SafeString(escape(value.text))


_OF_HASHED = mark_safe(
    ' <span class="hint">the keccak-256 of the value, because it is indexed and may be longer than a word</span>'
)


@register.simple_tag
def decoded_values(values: Sequence[DecodedValue]) -> SafeString:
    """Return the rows of a log's values. A template would take four times as long, and a page has up to 1,000."""
    facts, rows = _facts_page(get_script_prefix()), []
    for value in values:
        name = html('<th scope="row">{} <span class="mono hint">{}</span></th>', value.name, value.type)
        link = html('<a class="hex" href="{}?account={}">{}</a>', facts, value.text, value.text)
        text = link if value.type == "address" else value.text
        hint = _OF_HASHED if value.is_hashed else ""
        rows.append(html("<tr>{}<td>{} {}{}</td></tr>", name, text, copy(value.text, "the value"), hint))
    return SafeString("".join(rows))


@register.simple_tag
def topics(words: Sequence[str]) -> SafeString:
    """Return the topics of a log as lines of a list."""
    line = "<div><dt>topic {}</dt><dd>{}</dd></div>"
    return SafeString("".join(html(line, str(at), hexadecimal(word, "the topic")) for at, word in enumerate(words)))


_LONG_VALUE = re.compile(r"(0x(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{40})\b)")


@register.filter
def with_short_values(reason: WaitReason | str) -> SafeString:
    """Return a sentence, or a reason's sentence, with shortened addresses and hashes."""
    return SafeString(
        "".join(
            escape(part) if at % 2 == 0 else _by_its_ends(part)
            for at, part in enumerate(_LONG_VALUE.split(in_words(reason)))
        )
    )


@register.filter
def digits(amount: str) -> SafeString:
    """Return a decimal number in groups of three. Margins separate them, so a copied number has plain digits."""
    whole, point, fraction = amount.partition(".")
    first = len(whole) % 3 or 3
    groups = [whole[:first], *(whole[at : at + 3] for at in range(first, len(whole), 3))]
    groups[-1] += point + fraction[:3]
    groups += [fraction[at : at + 3] for at in range(3, len(fraction), 3)]
    return SafeString("<wbr>".join(f'<span class="g">{escape(group)}</span>' for group in groups))


@register.filter
def slot_in_short(slot: str) -> SafeString | str:
    """Return a slot like `slot_number`, shortened if it is long."""
    number = slot_number(slot)
    return _by_its_ends(number) if len(number) > MOST_OF_KEY else number


@register.filter
def slot_number(slot: str) -> str:
    """Return a storage slot without leading zeros."""
    return f"{int(slot, 16):#x}"


@register.filter
def paragraphs(text: str) -> list[str]:
    """Split a text at its empty lines."""
    return text.split("\n\n")


@register.filter
def with_code(text: str) -> SafeString:
    """Return a text whose parts between backticks are code."""
    parts = enumerate(text.split("`"))
    return SafeString("".join(f"<code>{escape(part)}</code>" if at % 2 else escape(part) for at, part in parts))


@register.filter
def url_path(path: str) -> SafeString:
    """Return a URL's path that may break before each slash, so that no word of it breaks."""
    return SafeString("<wbr>/".join(map(escape, path.split("/"))))


@register.filter
def slot_path(name: Mapping[str, Any]) -> SafeString:
    """Return a slot's name as a path, such as 0x2[0x7099…79C8][element 5].1 from a mapping to a struct's member."""
    pieces = slot_words.path(name)
    return SafeString(
        "".join(
            _by_its_ends(each.text) if each.is_key and len(each.text) > MOST_OF_KEY else escape(each.text)
            for each in pieces
        )
    )


@register.filter
def slot_at(names: Mapping[str, Mapping[str, Any]], slot: str) -> Mapping[str, Any] | None:
    """Return the name that the request has for a slot."""
    return names.get(slot)


# base.html draws each icon once. The style sheet hides the buttons without scripts. The empty span gets the result.
_OUT = mark_safe('<svg class="ic" aria-hidden="true"><use href="#out-icon"/></svg>')
_COPY_ICON = mark_safe('<svg class="ic" aria-hidden="true"><use href="#copy-icon"/></svg><span></span>')


@register.simple_tag
def copy(text: str, what: str) -> SafeString:
    """Return a button that copies the text."""
    return html(
        '<button type="button" class="copy" data-copy="{}" aria-label="Copy {}">{}</button>', text, what, _COPY_ICON
    )


@register.inclusion_tag("explorer/shared/_copy_from.html")
def copy_from(element_id: str, what: str) -> dict[str, str]:
    """Show a button like `copy` that copies an element's text, so that the page contains the text once."""
    return {"of": element_id, "what": what}


# --- Addresses in every page ------------------------------------------------------------------------------------------


@register.simple_tag
def about_service() -> dict[str, str]:
    """Return the version, and the addresses of its source code and documentation, as far as they are known."""
    version, source = settings.VERSION, settings.SOURCE_URL
    # GitHub and GitLab have the files of a tag or a branch at this path. Only a release has a tag.
    documentation = f"{source}/tree/{'main' if 'dev' in version else f'v{version}'}/docs" if source else ""
    return {"version": version, "source": source, "documentation": documentation}


@register.simple_tag
def csrf_cookie() -> str:
    return settings.CSRF_COOKIE_NAME


@register.simple_tag
def preview_image() -> str:
    """Return the image for previews of links. Its URL is absolute, because other hosts load it."""
    return settings.BASE_URL + static("preview.png")
