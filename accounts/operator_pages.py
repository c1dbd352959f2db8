"""The common parts of the admin's pages: they show rows, and change them by actions that operators confirm.

Lists cost the same however long their tables are: rows come in the order of their primary keys, only the newest
`_MOST_LISTED` are counted and can be paged to, and a search asks for what an index finds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import ShowFacets
from django.core.paginator import Paginator
from django.db import models, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts import operator_log
from accounts.models import User

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin
    _Rows = Paginator[Model]
else:
    # Not subscriptable at run time.
    class _ModelAdmin(admin.ModelAdmin, Generic[Row]):
        pass

    _Rows = Paginator

_MOST_LISTED = 10_000
_PER_PAGE = 50


class NewestOnly(_Rows):
    """Counts no further than it pages."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        assert isinstance(rows, QuerySet)
        return rows.order_by()[:_MOST_LISTED].count()


class AdminActionRefused(Exception):
    """It can't be done; the message is a sentence for the operator."""


class AdminActionForm(forms.Form):
    """The form of the page that confirms an action. Actions may ask for more than the reason."""

    reason = forms.CharField(max_length=200, label="Why", help_text="A sentence, for the log of operators.")

    def __init__(self, *args: Any, row: Model, **kwargs: Any) -> None:
        """Make the form of an action that is done to `row`."""
        super().__init__(*args, **kwargs)
        self.row = row


def row_action(
    name: str,
    label: str,
    consequence: str,
    do: Callable[[Any, dict[str, Any]], str],
    form: type[AdminActionForm] = AdminActionForm,
) -> Callable[..., TemplateResponse | None]:
    """Make an action on one row of a list, which operators confirm after they have said why.

    `do` acts on the row by the form's data, and returns a sentence for the log or nothing. It raises
    `AdminActionRefused`. `consequence` is a sentence on the page that confirms it.
    """

    @admin.action(description=label)
    def act(pages: "OperatorAdmin[Any]", request: HttpRequest, rows: QuerySet[Any]) -> TemplateResponse | None:
        assert isinstance(request.user, User)
        if len(rows[:2]) != 1:
            pages.message_user(request, "Choose one row.", messages.ERROR)
            return None
        (row,) = rows
        given = form(request.POST if "reason" in request.POST else None, row=row)
        if not given.is_valid():
            context = {"title": label, "opts": pages.opts, "row": row, "form": given, "consequence": consequence}
            context |= pages.admin_site.each_context(request) | {"action_name": name}
            return TemplateResponse(request, "admin/confirm_action.html", context)
        try:
            with transaction.atomic():
                detail = do(row, given.cleaned_data)
                message = f"{label}. {detail}".strip()
                operator_log.record(request.user, row, message, reason=given.cleaned_data["reason"])
        except AdminActionRefused as refused:
            pages.message_user(request, str(refused), messages.ERROR)
        else:
            pages.message_user(request, f"Done: {message}")
        return None

    act.__name__ = name
    return act


class Failing(admin.SimpleListFilter):
    """Rows that workers try again and again."""

    title, parameter_name = "failing", "failing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Failing")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        failing = queryset.filter(due_at__isnull=False, failing_since__isnull=False)
        return failing if self.value() else queryset


class OperatorAdmin(_ModelAdmin[Row]):
    """Read-only, but for actions. `search_help_text` says what `found` finds."""

    links_by: ClassVar[frozenset[str]] = frozenset()
    """Lookups by which pages of other rows link to this list."""

    ordering = ("-pk",)
    list_per_page = _PER_PAGE
    list_max_show_all = 0
    paginator = NewestOnly
    show_full_result_count = False
    show_facets = ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    # --- Lists --------------------------------------------------------------------------------------------------------

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        # That there are any makes Django show the field; what is found is up to `found`.
        return ("pk",)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Row], search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        return (self.found(queryset, term) if term else queryset), False

    def found(self, rows: QuerySet[Row], term: str) -> QuerySet[Row]:
        """Return the rows that a search for this text finds, by an index."""
        raise NotImplementedError

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in self.links_by

    def get_sortable_by(self, request: HttpRequest) -> tuple[()]:
        return ()


# --- Links ------------------------------------------------------------------------------------------------------------


def links(**targets: str) -> SafeString:
    """Return links with these texts, underscores for spaces, to these addresses."""
    pairs = ((address, text.replace("_", " ")) for text, address in targets.items())
    return format_html_join(" · ", '<a href="{}">{}</a>', pairs)


def list_of(model: type[models.Model], **lookup: object) -> str:
    """Return the address of the list of these rows. The list's admin must have the lookup in `links_by`."""
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    query = "&".join(f"{name}={value}" for name, value in lookup.items())
    return f"{address}?{query}"
