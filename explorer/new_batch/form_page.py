"""The page of the form, as it is to be shown: a draft, what came of it, and where the reader goes on."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.error_answers import Refused
from explorer.batch import submitted_request
from explorer.batch.code_snippets import submitting
from explorer.new_batch import corrections, pasted_rows
from explorer.new_batch.asking import Estimated
from explorer.new_batch.drafts import Draft, Row
from explorer.new_batch.forms import DraftForm, RowForm, destination, posted
from explorer.new_batch.pasted_rows import LineFault
from explorer.new_batch.shown_estimate import MeantBlock
from explorer.new_batch.shown_faults import ShownFaults, control
from queries.api_errors import status_of
from queries.batch_request import InvalidRequest
from queries.models import Batch

# Longer JSON is only offered as a file.
_MOST_SHOWN_CHARACTERS = 20_000
# The least characters of a line of JSON. A request with too many parts is too long, and isn't written to see that.
_LEAST_CHARACTERS = 18
_MOST_LINE_FAULTS = 20
_CHAIN_ID = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class FormPage:
    draft: Draft
    token: str
    faults: ShownFaults = field(default_factory=ShownFaults)
    refused: Refused | None = None  # what was to be submitted
    estimated: Estimated | None = None
    line_faults: Sequence[LineFault] = ()  # of what was pasted
    said: str = ""  # what a button has done
    focus: str = ""  # the id of the control where the reader goes on
    corrects: Batch | None = None  # that was rejected
    is_signed_out: bool = False  # Then nothing is made of what was typed.

    @property
    def status(self) -> int:
        if self.refused:
            return status_of(self.refused)
        is_wrong = self.line_faults or self.faults.listed or (self.estimated and self.estimated.faults.listed)
        return 400 if is_wrong and not self.corrects else 200


@dataclass(frozen=True)
class RowHead:
    """The summary of a folded row."""

    number: int  # from 0
    row: Row
    block: MeantBlock | None  # None: it is not known

    @classmethod
    def of(cls, number: int, row: Row, estimated: Estimated | None) -> Self:
        found = estimated and estimated.estimate
        return cls(number, row, found.blocks.get((row.source, row.selector)) if found else None)

    @property
    def source(self) -> str:
        source = self.row.source
        return chain_name(int(source)).name if _CHAIN_ID.fullmatch(source) else source


@dataclass(frozen=True)
class ShownRow:
    head: RowHead
    form: RowForm
    is_wrong: bool
    is_open: bool


def answer(request: HttpRequest, page: FormPage) -> HttpResponse:
    """Answer with the page; for htmx, with the form alone, which goes to where it was."""
    is_htmx = bool(getattr(request, "htmx", False))
    template = "explorer/new_batch/_form.html" if is_htmx else "explorer/new_batch/page.html"
    response = render(request, template, _context(page), status=200 if is_htmx else page.status)
    if not is_htmx and page.refused and page.refused.retry_after:
        response.headers["Retry-After"] = str(page.refused.retry_after)
    return response


def answer_estimate(request: HttpRequest, draft: Draft, estimated: Estimated) -> HttpResponse:
    """Answer htmx with what stands beside the form."""
    heads = [RowHead.of(number, row, estimated) for number, row in enumerate(draft.rows)]
    context = {**_beside(draft, estimated), "is_estimate_alone": True, "heads": heads}
    return render(request, "explorer/new_batch/_estimate.html", context)


def answer_refusal(request: HttpRequest, refused: Refused) -> HttpResponse:
    """Tell htmx why there is no estimate. What was typed isn't looked at, so all else stays as it is."""
    context = {"estimated": Estimated(refused=refused), "is_refusal_alone": True}
    response = render(request, "explorer/new_batch/_estimate.html", context)
    response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#estimate", "innerHTML"
    return response


def _context(page: FormPage) -> dict[str, Any]:
    faults = page.faults if page.faults.listed or not page.estimated else page.estimated.faults
    form = DraftForm(posted(page.draft, page.token), get_chains())
    for (row, name), sentences in faults.by_field.items():
        (form.batch if row is None else form.rows[row]).add_error(name, list(sentences))
    if page.line_faults:
        pasted = {"aria-invalid": "true", "aria-describedby": "id_pasted_error paste-columns"}
        form.batch.fields["pasted"].widget.attrs.update(pasted)
    focus = page.focus or (next((one.target for one in faults.listed), "") if page.corrects else "")
    _set_focus(form, focus)
    return {
        "page": page,
        "form": form.batch,
        "rows": list(_rows(page, form, faults, focus)),
        "management": form.rows.management_form,
        "faults": faults,
        "rejected_because": corrections.reason_in_short(page.corrects) if page.corrects else "",
        "focus": focus,
        # With JavaScript, without a button. What is known to be wrong isn't asked about.
        "asks_at_once": not (page.draft.is_blank or page.estimated or (faults.listed and not page.corrects)),
        "line_faults": page.line_faults[:_MOST_LINE_FAULTS],
        "more_line_faults": max(0, len(page.line_faults) - _MOST_LINE_FAULTS),
        "columns": pasted_rows.COLUMNS,
        "max_queries": settings.MAX_QUERIES_PER_BATCH,
        **_beside(page.draft, page.estimated, shows_json=not page.is_signed_out),
    }


def _rows(page: FormPage, form: DraftForm, faults: ShownFaults, focus: str) -> Iterator[ShownRow]:
    for number, (row, row_form) in enumerate(zip(page.draft.rows, form.rows, strict=True)):
        is_wrong = number in faults.rows
        has_focus = focus.startswith(f"id_rows-{number}-")
        is_open = is_wrong or has_focus or not row.is_complete or len(page.draft.rows) == 1
        yield ShownRow(RowHead.of(number, row, page.estimated), row_form, is_wrong, is_open)


def _set_focus(form: DraftForm, target: str) -> None:
    for one in (form.batch, *form.rows):
        for bound in one:
            if target and target in {
                control(None, bound.html_name),
                f"id_{bound.html_name}",
                f"id_{bound.html_name}_0",
            }:
                bound.field.widget.attrs["autofocus"] = True


def _destination(draft: Draft) -> Mapping[str, Any]:
    """Return what the page says of the chosen destination."""
    chains = get_chains()
    chosen = destination(draft, chains)
    return {
        "currency": chosen.native_currency if chosen else "ETH",
        "is_test_network": bool(chosen and chosen.test_network),
        "sources": [chain.name for chain in chains.sources(chosen.id)] if chosen else [],
    }


def _beside(draft: Draft, estimated: Estimated | None, *, shows_json: bool = True) -> dict[str, Any]:
    """Return the estimate, and the same by API."""
    said = {"estimated": estimated, "draft": draft, "facts": draft.facts, "destination": _destination(draft)}
    return {**said, **_by_api(draft)} if shows_json else said


def _by_api(draft: Draft) -> dict[str, str]:
    if draft.is_blank:
        return {}
    command = f"curl --header \"api-key: $API_KEY\" --json @batch.json '{settings.BASE_URL}/submit-batch-query'"
    if draft.size * _LEAST_CHARACTERS > _MOST_SHOWN_CHARACTERS:
        return {"command": command}
    try:
        request = draft.request(settings.MAX_QUERIES_PER_BATCH)
    except InvalidRequest:
        return {}
    text = submitted_request.as_text(request.document)
    if len(text) > _MOST_SHOWN_CHARACTERS:
        return {"command": command}
    return {"json": text, "command": submitting(settings.BASE_URL, text)}


def file_of(draft: Draft) -> HttpResponse:
    """Return the JSON as a file, to be kept. Raises `InvalidRequest`."""
    text = submitted_request.as_text(draft.request(settings.MAX_QUERIES_PER_BATCH).document)
    return HttpResponse(
        text + "\n",
        content_type="application/json",
        headers={"Content-Disposition": 'attachment; filename="batch.json"'},
    )
