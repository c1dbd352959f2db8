"""Batches and the blocks that they are about, in the admin."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from accounts.operator_pages import AdminActionRefused, Failing, OperatorAdmin, links, list_of, row_action
from chains.address_checksum import checksummed
from config.configured_chains import get_chains
from queries import progress
from queries.models import OPEN_STATUSES, Batch, Block, WebhookDelivery
from queries.rejection_codes import RejectionCode


def _cancel(batch: Batch, form: dict[str, Any]) -> str:
    reason = f"The operator has cancelled the batch. The reason given: {form['reason']}"
    if not progress.cancel(batch.pk, code=RejectionCode.CANCELLED_BY_OPERATOR, reason=reason):
        raise AdminActionRefused("The batch is not open any more, so nothing was cancelled.")
    return "What was sent for it before stays paid, and is followed."


class _Open(admin.SimpleListFilter):
    title, parameter_name = "progress", "open"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Open")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Batch]) -> QuerySet[Batch]:
        return queryset.filter(status__in=OPEN_STATUSES) if self.value() else queryset


@admin.register(Batch)
class BatchAdmin(OperatorAdmin[Batch]):
    search_help_text = "Finds an identifier, and all batches of an address."
    links_by = frozenset({"open", "failing", "user__id__exact", "api_key__id__exact", "shares__transaction__id__exact"})
    list_display = ("id", "status", "sender", "user", "destination_chain_id", "size", "created_at", "rejection_code")
    list_select_related = ("user",)
    list_filter = (_Open, Failing)
    exclude = ("request", "lease_token")
    readonly_fields = ("related",)
    actions = (
        row_action(
            "cancel",
            "Cancel the batch",
            "The batch is rejected for good, and its submitter reads why. What was sent for it stays paid; what is not "
            "mined yet and serves nobody else is cancelled.",
            _cancel,
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Batch]:
        return super().get_queryset(request).defer("request")

    def found(self, rows: QuerySet[Batch], term: str) -> QuerySet[Batch]:
        # By identifier or by user, each by its own index.
        if address := checksummed(term):
            return rows.filter(user__address=address)
        return rows.filter(pk=term.upper())

    @admin.display(description="See also")
    def related(self, batch: Batch) -> str:
        transactions = f"{reverse('admin:proving_transaction_changelist')}?shares__batch__id__exact={batch.pk}"
        return links(
            its_page=reverse("explorer:batch", args=[batch.pk]),
            blocks=list_of(Block, queries__batch__id__exact=batch.pk),
            transactions=transactions,
            webhook_deliveries=list_of(WebhookDelivery, webhook__batch__id__exact=batch.pk),
        )


@admin.register(Block)
class BlockAdmin(OperatorAdmin[Block]):
    search_help_text = "Finds a number."
    links_by = frozenset({"failing", "queries__batch__id__exact"})
    list_display = (
        "number",
        "source_chain_id",
        "destination_chain_id",
        "due_at",
        "attempts",
        "waiting_for",
        "is_checkpoint",
    )
    list_filter = (Failing,)
    exclude = ("header_rlp", "lease_token")
    readonly_fields = ("related",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Block]:
        return super().get_queryset(request).defer("header_rlp")

    def found(self, rows: QuerySet[Block], term: str) -> QuerySet[Block]:
        if not (term.isascii() and term.isdigit() and int(term) < 2**63):
            return rows.none()
        # The index begins with the chains.
        of_any = Q(pk=None)
        for each in get_chains().connections:
            of_any |= Q(destination_chain_id=each.destination_id, source_chain_id=each.source_id, number=int(term))
        return rows.filter(of_any)

    @admin.display(description="See also")
    def related(self, block: Block) -> str:
        sent = reverse("admin:proving_transaction_changelist")
        batches = {
            f"batch_{pk}": reverse("admin:queries_batch_change", args=[pk])
            for pk in block.queries.order_by("-batch").values_list("batch", flat=True).distinct()[:10]
        }
        return links(**batches, transactions=f"{sent}?queries__block__id__exact={block.pk}")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OperatorAdmin[WebhookDelivery]):
    """A page without URL and content, which are the user's business."""

    search_help_text = "Finds an identifier of a delivery, and all deliveries of a batch."
    links_by = frozenset({"webhook__batch__id__exact"})
    list_display = ("message_id", "webhook_id", "event", "status", "failures", "created_at", "next_try_at", "ended_at")
    fields = (
        *("message_id", "user", "event", "status", "failures", "created_at", "next_try_at", "gives_up_at"),
        *("ended_at", "attempts", "related"),
    )
    readonly_fields = ("related",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        return super().get_queryset(request).defer("body")

    def found(self, rows: QuerySet[WebhookDelivery], term: str) -> QuerySet[WebhookDelivery]:
        return rows.filter(message_id=term) if term.startswith("msg_") else rows.filter(webhook=term.upper())

    @admin.display(description="See also")
    def related(self, delivery: WebhookDelivery) -> str:
        return links(batch=reverse("admin:queries_batch_change", args=[delivery.webhook_id]))
