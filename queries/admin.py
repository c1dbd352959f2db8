"""The admin's pages of batches and their blocks."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from accounts.admin import ReadOnlyAdmin, brief
from queries import batch_states
from queries.columns import RejectionCode
from queries.models import Batch, Block, WebhookDelivery


class _Failing(admin.SimpleListFilter):
    """A filter for rows that keep failing."""

    title, parameter_name = "failing", "failing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Failing")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        failing = queryset.filter(due_at__isnull=False, failing_since__isnull=False)
        return failing if self.value() else queryset


class _CancelForm(ActionForm):
    reason = forms.CharField(max_length=200, required=False, label="Why")


@admin.register(Batch)
class BatchAdmin(ReadOnlyAdmin):
    search_fields = ("=pk", "=user__address", "=api_key__last_four")
    list_display = (
        *("id", "status", brief("User", "user"), brief("Chain", "destination_chain_id"), "size", "created_at"),
        brief("Rejection", "rejection_code"),
    )
    list_select_related = ("user",)
    list_filter = ("status", "sender", _Failing)
    exclude = ("request",)
    action_form = _CancelForm
    actions = ("cancel",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Batch]:
        return super().get_queryset(request).defer("request")

    def view_on_site(self, obj: Batch) -> str:
        return reverse("explorer:batch", args=[obj.pk])

    @admin.action(description="Cancel the batches, for good")
    def cancel(self, request: HttpRequest, batches: QuerySet[Batch]) -> None:
        why = request.POST["reason"].strip()
        if not why:
            self.message_user(request, "Give a reason: the batches' users read it.", messages.ERROR)
            return
        reason = f"The operator has cancelled the batch. The reason given: {why}"
        for batch in batches:
            with transaction.atomic():
                if not batch_states.withdraw([batch.pk], code=RejectionCode.CANCELLED_BY_OPERATOR, reason=reason):
                    self.message_user(request, f"{batch} is no longer open.", messages.ERROR)
                    continue
                self.log_change(request, batch, f"Cancelled. Why: {why}")
            self.message_user(
                request, f"{batch} was cancelled. Its sent transactions stay paid, and workers follow them."
            )


@admin.register(Block)
class BlockAdmin(ReadOnlyAdmin):
    search_fields = ("number__exact",)
    list_display = (
        *("number", brief("Source", "source_chain_id"), brief("Destination", "destination_chain_id"), "due_at"),
        *("attempts", brief("Waits for", "wait"), "is_checkpoint"),
    )
    list_filter = (_Failing,)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin):
    """Deliveries, without the URL and the content, which are private to the user."""

    search_fields = ("=message_id", "webhook_id__exact")
    list_display = ("message_id", "webhook_id", "event", "status", "failures", "created_at", "next_try_at")
    fields = (
        *("message_id", "user", "event", "status", "failures", "created_at", "next_try_at", "gives_up_at"),
        *("ended_at", "attempts"),
    )
