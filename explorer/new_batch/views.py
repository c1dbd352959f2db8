"""The views of the form. Each submit button has a `do` value that names its action, so no JavaScript is needed."""

import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from accounts.form_input import HIDDEN_ORIGIN, hides_origin
from accounts.models import KeyAccess, User
from accounts.signed_in import signed_in
from batch_query_client import csv_table
from config.configured_chains import get_chains
from config.error_answers import Refused, with_retry_after
from explorer.formatting.amounts import whole_units
from explorer.formatting.wait_words import in_words
from explorer.new_batch import csv_rows, estimate_panel, row_kinds, storage_slots, token_slots
from explorer.new_batch.form_sentences import FIELD_SENTENCES, REFUSAL_SENTENCES
from explorer.new_batch.forms import MAX_ROWS, BatchForm, NewBatchForm, RowFault, posted, typed
from explorer.new_batch.token_slots import SlotNotFound
from queries import columns, submission
from queries.api_endpoint import ApiError, status_of
from queries.batch_request import InvalidRequest
from queries.models import Batch, BatchStatus
from queries.submission import ESTIMATES

_JSON = json.JSONEncoder(indent=2, ensure_ascii=False)
# Longer JSON is offered only as a file.
_MOST_SHOWN_CHARACTERS = 20_000
# Maximum bytes of a form that is kept for a reader who is signed out.
_MOST_KEPT = 128 * 1024


@never_cache
@csrf_exempt  # `_check` does it, because Django's error page would lose the input.
@require_http_methods(["GET", "POST"])
def new_batch(request: HttpRequest) -> HttpResponse:
    """Show the form, and run the actions of its buttons. `from` names a batch of the user to copy into the form."""
    if request.method != "POST":
        return _first(request)
    try:
        user = _check(request)
        name, _, of = request.POST.get("do", "").partition("-")
        _count(user, name)
        form = NewBatchForm(request.POST, user)
    except Refused as refused:
        return _kept(request, refused)
    if name in _NEEDING_SLOTS and (row := form.row_to_search) is not None:
        name, of = "find", str(row)
    is_of_row = of in map(str, range(len(form.rows.forms)))
    # A submit without a button, such as with Enter in a field, estimates the batch.
    action = (_OF_ROW if is_of_row else _OF_FORM).get(name, _Post.estimate)
    try:
        return action(_Post(request, user, form, of))
    except Refused as refused:
        return _answer(request, form, refused=refused)


@never_cache
@csrf_exempt
@require_http_methods(["GET", "POST"])
def estimate(request: HttpRequest) -> HttpResponse:
    """Return the cost estimate of the posted form, for htmx. A GET redirects to the form."""
    if request.method != "POST":
        return redirect("explorer:new_batch")
    try:
        user = _check(request)
        _count(user, "estimate")
        form = NewBatchForm(request.POST, user)
        context = {"form": form, **estimate_panel.context(user, form), **_beside(form)}
    except Refused as refused:
        context = {"not_estimated": refused.sentence, "is_refusal_alone": True}
    return render(request, "explorer/new_batch/_estimate.html", {"is_estimate_alone": True, **context})


def _check(request: HttpRequest) -> User:
    """Return the user after checking the session and the CSRF token. Raises `Refused`."""
    user = request.user
    if not isinstance(user, User):
        raise _refusal(401, "not_signed_in")
    if CsrfViewMiddleware(_no_answer).process_view(request, _no_answer, (), {}):
        raise ApiError(403, "csrf_failed", HIDDEN_ORIGIN) if hides_origin(request) else _refusal(403, "csrf_failed")
    return user


def _refusal(status: int, code: str) -> ApiError:
    return ApiError(status, code, REFUSAL_SENTENCES[code])


def _count(user: User, button: str) -> None:
    """Count a post before its form is built, because building it takes long. Raises `Refused`.

    A submitted batch counts as a batch only when it is stored.
    """
    if button == "submit":
        submission.check_rate(user)
    submission.count_request(user, ESTIMATES)


def _no_answer(_: HttpRequest) -> HttpResponse:
    return HttpResponse()


# --- Answers ----------------------------------------------------------------------------------------------------------


def _kept(request: HttpRequest, refused: Refused) -> HttpResponse:
    """Return the posted fields as hidden inputs, because building the form would take ten times as long.

    Buttons are left out, so that the reader sees the form before any action runs. A large form isn't kept for a
    reader who is signed out.
    """
    # Anybody may post a form, and a large one takes long to read.
    is_read = request.user.is_authenticated or int(request.META.get("CONTENT_LENGTH") or 0) <= _MOST_KEPT
    pairs = request.POST.lists() if is_read else ()
    posted = [pair for pair in pairs if pair[0] in BatchForm.base_fields or pair[0].startswith("rows-")]
    template, status = ("_kept", 200) if getattr(request, "htmx", False) else ("page", status_of(refused))
    context = {"posted": posted, "refused": refused}
    response = render(request, f"explorer/new_batch/{template}.html", context, status=status)
    return with_retry_after(response, refused.retry_after)


def _answer(request: HttpRequest, form: NewBatchForm, **more: Any) -> HttpResponse:
    """Answer with the page. For htmx, answer only with the form, which replaces the old form."""
    refused: Refused | None = more.get("refused")
    for row in form.rows:
        row.focus(more.get("focus", ""))
    context = {
        "form": form,
        "columns": csv_table.COLUMNS,
        "kinds": row_kinds.KINDS.values(),
        "max_queries": settings.MAX_QUERIES_PER_BATCH,
        "base_url": settings.BASE_URL,
        **_beside(form),
        **more,
    }
    context["faults"] = faults = list(form.faults)
    if getattr(request, "htmx", False):
        return render(request, "explorer/new_batch/_form.html", context)
    status = status_of(refused) if refused else form.status if faults else 200
    response = render(request, "explorer/new_batch/page.html", context, status=status)
    return with_retry_after(response, refused.retry_after if refused else None)


def _beside(form: NewBatchForm) -> dict[str, Any]:
    """Return the texts next to the form: about the chosen destination, and the same request for the API."""
    chain = form.destination
    beside: dict[str, Any] = {
        "chosen": chain,
        "sources": [source.name for source in get_chains().sources(chain.id)] if chain else [],
    }
    # An invalid field would have another value in the JSON.
    if form.batch.is_bound and not form.is_blank and form.batch.is_valid() and form.rows.is_valid():
        try:
            pieces = _JSON.iterencode(form.document)
        except InvalidRequest:
            return beside
        # Long text isn't shown, so that only its beginning is written. No piece is empty.
        text = "".join(islice(pieces, _MOST_SHOWN_CHARACTERS + 1))
        beside |= {"json": text} if len(text) <= _MOST_SHOWN_CHARACTERS else {"json_is_long": True}
    return beside


# --- A new form -------------------------------------------------------------------------------------------------------


@signed_in
def _first(request: HttpRequest, user: User) -> HttpResponse:
    connection = next(iter(get_chains().connections), None)
    batch = {"token": secrets.token_urlsafe(16), "sender": "service"}
    row = {}
    if connection is not None:
        pays = bool(get_chains().chain(connection.destination_id).all_signers)
        batch |= {"destination": str(connection.destination_id), "sender": "service" if pays else "self"}
        row = {"source": str(connection.source_id)}
    blank = NewBatchForm(batch=batch, rows=[row])
    if not (internal_id := request.GET.get("from", "")):
        return _answer(request, blank)
    earlier = Batch.objects.filter(pk=columns.batch_id(internal_id), user=user).first()
    if earlier is None:
        return _answer(request, blank, outcome="no_batch", outcome_of=internal_id)
    document = json.loads(earlier.request)
    rows = list(rows_of(document["data"]))
    if len(rows) > MAX_ROWS:
        return _answer(request, blank, outcome="batch_too_large", outcome_of=earlier.pk)
    fee = document.get("fee", "")
    batch |= {
        "destination": document["destinationChainId"],
        "sender": document.get("sender", "service"),
        "label": earlier.label or "",
        "fee": whole_units(int(fee)) if fee.isdecimal() and "sender" not in document else "",
    }
    more: dict[str, Any] = {"outcome": "filled_in", "outcome_of": earlier.pk, "omits_webhook": "webhook" in document}
    if earlier.status == BatchStatus.REJECTED:
        reason = in_words(earlier.rejected_because or earlier.rejection_reason)
        more |= {"rejected": earlier, "rejected_because": reason}
    return _answer(request, NewBatchForm(batch=batch, rows=rows), **more)


def rows_of(data: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a request. Accounts with the same facts share one."""
    for source, blocks in data.items():
        for selector, block in blocks.items():
            where = {"source": source, **csv_rows.block_fields(selector)}
            header = block.get("header", [])
            alike: dict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
            for account, account_request in (block.get("accounts") or {}).items():
                slots = storage_slots.as_typed(account_request.get("slots", ()))
                alike[tuple(account_request.get("props", ())), slots].append(account)
            transactions = list(_rows_of_transactions(block.get("transactions") or {}))
            if not alike and not transactions:
                yield {**where, "props": [], "header": header}
            for (props, slots), accounts in alike.items():
                fields = {"accounts": "\n".join(accounts), "props": list(props), "slots": "\n".join(slots)}
                yield {**where, **fields, "header": header}
                header = []
            for fields in transactions:
                yield csv_rows.named_once({**where, **fields, "props": [], "header": header})
                header = []


def _rows_of_transactions(transactions: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what rows ask of transactions. Those with the same facts share one."""
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
    for name, asked in transactions.items():
        alike[tuple(tuple(asked.get(field, ())) for field in ("props", "logs", "blockLogs"))].append(name)
    for (props, logs, block_logs), names in alike.items():
        texts = {"logs": " ".join(logs), "block_logs": " ".join(block_logs)}
        yield {"transactions": "\n".join(names), "tx_props": list(props), **texts}


# --- Buttons ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Post:
    """A form that a user posted with a button. `of` is the button's row, or the request that it confirms, if any."""

    request: HttpRequest
    user: User
    form: NewBatchForm
    of: str

    @property
    def number(self) -> int:
        return int(self.of)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return [typed(row) for row in self.form.rows]

    def _changed(
        self, rows: Sequence[Mapping[str, Any]], focus: str, outcome: str = "", of: object = "", **batch: str
    ) -> HttpResponse:
        """Answer with the form as the button has changed it, without validation.

        The template `_outcome.html` uses `outcome` and its object `of`.
        """
        form = NewBatchForm(batch=typed(self.form.batch) | batch, rows=rows)
        return _answer(self.request, form, focus=focus, outcome=outcome, outcome_of=of)

    def estimate(self) -> HttpResponse:
        return _answer(self.request, self.form, **estimate_panel.context(self.user, self.form))

    def submit(self) -> HttpResponse:
        # The batch is stored under a key, so that the admin and the list of a key's batches show it.
        key = self.user.api_keys.live(timezone.now()).filter(access=KeyAccess.FULL).order_by("pk").first()
        if key is None:
            raise _refusal(403, "no_api_key")
        if not self.form.is_valid:
            submission.count_request(self.user)
            return _answer(self.request, self.form)
        token = self.form.batch.cleaned_data["token"] or secrets.token_hex()
        try:
            # A changed form is another request, and is confirmed anew.
            asked = hashlib.sha256(self.form.body).hexdigest()
            if self.of != asked and (panel := estimate_panel.to_confirm(self.user, self.form)):
                return _answer(self.request, self.form, to_confirm="" if "is_hopeless" in panel else asked, **panel)
            # A form that is posted twice creates one batch. A changed form creates another one.
            name = hashlib.sha256(token.encode() + self.form.body).hexdigest()
            batch = submission.submit(key, name, lambda: self.form.body).batch_id
        except InvalidRequest as invalid:
            self.form.add_faults(invalid)
            return _answer(self.request, self.form)
        response = redirect("explorer:batch", batch)
        response.status_code = 303
        return response

    def json(self) -> HttpResponse:
        if self.form.is_valid:
            headers = {"Content-Disposition": 'attachment; filename="batch.json"'}
            return HttpResponse(
                _JSON.encode(self.form.document) + "\n", content_type="application/json", headers=headers
            )
        return _answer(self.request, self.form)

    def add(self) -> HttpResponse:
        rows = self._rows
        if len(rows) >= MAX_ROWS:
            return self._changed(rows, "add-row", "too_many_rows", MAX_ROWS)
        # A further row is usually about the same block and the same kind of things.
        new, subject = {}, "accounts"
        if rows:
            kind = self.form.rows[-1].proves
            kind = row_kinds.BALANCE if kind is row_kinds.SEVERAL else kind
            new = {name: rows[-1][name] for name in ("source", "at", "block", "time", "block_of", "token", "base")}
            new["kind"], subject = kind.name, "holder" if kind.call and new["token"] else kind.subject
        return self._changed([*rows, new], f"id_rows-{len(rows)}-{subject}")

    def remove(self) -> HttpResponse:
        rows = self._rows
        removed = rows.pop(self.number)
        return self._changed(rows or [{"source": removed["source"]}], "add-row", "row_removed", self.number + 1)

    def slot(self) -> HttpResponse:
        """Add the slot that the row's helper names."""
        form, row = self.form.rows[self.number], self._rows[self.number]
        fields = ("slot_of", "slot_layout", "slot_base", "slot_key")
        try:
            slot = storage_slots.named(*(row[name] or "" for name in fields))
        except ValidationError as error:
            form.add_error(None, error)
            return _answer(self.request, self.form)
        row |= {"slots": "\n".join([*form.contents["slots"], slot]), "slot_key": ""}
        return self._changed(self._rows, f"id_rows-{self.number}-slot_key", "slot_added", slot)

    def find(self) -> HttpResponse:
        """Search for the slot from which the row's token answers."""
        form, row, rows = self.form, self.form.rows[self.number], self._rows
        if not row.proves.call or row.question.empty_fields:
            return _answer(self.request, form)
        try:
            found = token_slots.find(self.user, row.question, str(form.batch["destination"].value() or ""))
        except SlotNotFound as why:
            row.errors.pop("holder", None)
            for name, sentence in why.faults.items():
                row.add_error(name, sentence)
            form.status = why.status
            return _answer(self.request, form)
        if found.is_of_block and not row.at_newest and row.selector != found.question.block:
            row.errors.pop("holder", None)
            row.add_error("at", FIELD_SENTENCES["of_one_block"])
            return _answer(self.request, form)
        rows[self.number] |= {"found": found.signed}
        outcome = "slot_found" if found.has_answer else "words_found"
        is_last = not any(other.is_to_be_searched for other in form.rows if other is not row)
        if is_last and found.is_certain and self.request.POST.get("do", "").startswith("submit"):
            outcome = "slot_to_check"
        if found.is_of_block:
            rows[self.number] |= {"at": "block", "block": str(found.block)}
        return self._changed(rows, f"id_rows-{self.number}-found", outcome, self.number + 1)

    def paste(self) -> HttpResponse:
        form, rows = self.form, self._rows
        names = {chain.name.casefold(): str(chain.id) for chain in get_chains().chains}
        file = self.request.FILES.get("file")
        try:
            text = csv_table.text_of(file.read()) if file else form.batch["pasted"].value() or ""
            like = form.rows[-1].shown if rows else typed(form.rows.empty_form)
            pasted = csv_rows.read(text, like, names, settings.MAX_QUERIES_PER_BATCH, self._faults_of)
        except ValidationError as error:
            form.batch.add_error("pasted", error)
        except ValueError as error:
            form.batch.add_error("pasted", str(error))
        else:
            kept = rows[:-1] if rows and csv_rows.is_of_token(like) else rows
            rows = [*([] if form.is_blank else kept), *pasted.rows]
            if len(rows) <= MAX_ROWS:
                return self._changed(rows, "submit", "lines_added", pasted.line_count, pasted="")
            sentence = FIELD_SENTENCES["pasted_too_many_rows"].format(most=MAX_ROWS, count=len(rows))
            form.batch.add_error("pasted", sentence)
        return _answer(self.request, form)

    def _faults_of(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[RowFault]:
        """Yield the faults of rows that are not in the form yet."""
        return NewBatchForm(posted(typed(self.form.batch), rows), self.user).row_faults()


_OF_FORM = {"submit": _Post.submit, "json": _Post.json, "add": _Post.add, "paste": _Post.paste}
_OF_ROW = {"remove": _Post.remove, "slot": _Post.slot, "find": _Post.find}
# Buttons whose action needs the slots of all tokens. Before it they are searched for, one with each post.
_NEEDING_SLOTS = {"submit", "json", "estimate", ""}
