"""Admin pages: stops of sending, and read-only lists of signers, registries and transactions."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.utils.html import format_html

from accounts.admin import ReadOnlyAdmin, brief
from proving import stops
from proving.models import FactsRegistry, Signer, Stop, Transaction


class _StopForm(forms.ModelForm):  # type: ignore[type-arg]  # not subscriptable at run time
    what = forms.TypedChoiceField(
        choices=lambda: [(what, what) for what in stops.stoppable()], coerce=lambda what: stops.stoppable()[what]
    )

    class Meta:
        model = Stop
        fields: ClassVar = ["what", "reason"]
        help_texts: ClassVar = {"reason": "A sentence. Users see it on the pages of batches that wait."}


@admin.register(Stop)
class StopAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """Adding a stop halts sending before the next signature. Deleting it resumes sending."""

    form = _StopForm
    list_display = ("subject", "since", brief("By", "by"), "code", "reason")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Stop, form: Any, change: bool) -> None:  # noqa: FBT001 (Django's signature)
        what = form.cleaned_data["what"]
        obj.chain_id, obj.source_chain_id, obj.signer = what.chain_id, what.source_chain_id, what.signer
        obj.pk = stops.stop(
            obj.chain_id, by=str(request.user), reason=obj.reason, source=obj.source_chain_id, signer=obj.signer
        ).pk

    def log_addition(self, request: HttpRequest, obj: Stop, message: Any) -> LogEntry:
        return super().log_addition(request, obj, f"Stopped. {f'Why: {obj.reason}' if obj.reason else ''}".strip())


# --- Read-only lists --------------------------------------------------------------------------------------------------


@admin.register(Signer)
class SignerAdmin(ReadOnlyAdmin):
    search_fields = ("=address",)
    list_display = ("address", "chain_id", brief("Waits for", "wait"), "due_at")


@admin.register(FactsRegistry)
class FactsRegistryAdmin(ReadOnlyAdmin):
    search_fields = ("=address",)
    list_display = (
        *(brief("Address", "address"), "source_chain_id", "destination_chain_id", "deployed_at", "replaced_at"),
        "refused",
    )


@admin.register(Transaction)
class TransactionAdmin(ReadOnlyAdmin):
    search_fields = ("=versions__hash", "nonce__exact", "=shares__batch__pk", "=signer__address")
    list_display = (
        *("nonce", brief("Signer", "signer"), "state", brief("Hash", "hash"), brief("Block", "block_number")),
        *("succeeded", "spent_at", brief("Error", "error")),
    )
    list_select_related = ("signer",)
    exclude = ("queries", "continued", "accumulates")
    readonly_fields = ("versions",)

    @admin.display(description="Signed versions")
    def versions(self, tx: Transaction) -> str:
        versions = tx.versions.order_by("pk").defer("raw")
        return format_html(
            "{}",
            "\n".join(f"{version}{' (a cancellation)' if version.is_cancellation else ''}" for version in versions),
        )
