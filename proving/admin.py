"""What of proving the operator sees and decides in the admin."""

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from accounts.models import User
from accounts.operator_pages import OperatorAdmin, links, list_of
from chains.address_checksum import checksummed
from config.configured_chains import get_chains
from proving import stops
from proving.models import FactsRegistry, SignedTransaction, Signer, Stop, Transaction
from queries.models import Batch

if TYPE_CHECKING:
    _StopModelForm = forms.ModelForm[Stop]
    _StopModelAdmin = admin.ModelAdmin[Stop]
else:
    # Not subscriptable at run time.
    _StopModelForm, _StopModelAdmin = forms.ModelForm, admin.ModelAdmin


class _StopForm(_StopModelForm):
    what = forms.TypedChoiceField(
        choices=lambda: [(what, what) for what in _stoppable()], coerce=lambda what: _stoppable()[what]
    )

    class Meta:
        model = Stop
        fields: ClassVar = ["what", "reason"]
        help_texts: ClassVar = {"reason": "A sentence. Users see it on the pages of batches that wait."}


def _stoppable() -> dict[str, Stop]:
    """Return what can be stopped, by its name for the operator."""
    chains = get_chains()
    return {
        **{chain.label: Stop(chain_id=chain.id) for chain in chains.destinations()},
        **{
            f"{chains.chain(one.source_id).label} to {chains.chain(one.destination_id).label}": Stop(
                chain_id=one.destination_id, source_chain_id=one.source_id
            )
            for one in chains.connections
        },
        **{
            f"The signer {signer.address} on {chain.label}": Stop(chain_id=chain.id, signer=signer.address)
            for chain in chains.destinations()
            for signer in Signer.objects.filter(chain_id=chain.id).order_by("pk")
        },
    }


@admin.register(Stop)
class StopAdmin(_StopModelAdmin):
    """Adding one stops sending before the next signature; deleting it takes that back."""

    form = _StopForm
    list_display = ("subject", "since", "by", "code", "reason")

    def has_change_permission(self, request: HttpRequest, obj: Stop | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Stop, form: Any, change: bool) -> None:  # noqa: FBT001 (Django's signature)
        assert isinstance(request.user, User)
        what = form.cleaned_data["what"]
        obj.chain_id, obj.source_chain_id, obj.signer = what.chain_id, what.source_chain_id, what.signer
        obj.pk = stops.stop(
            obj.chain_id, by=request.user.address, reason=obj.reason, source=obj.source_chain_id, signer=obj.signer
        ).pk

    def log_addition(self, request: HttpRequest, obj: Stop, message: Any) -> LogEntry:
        return super().log_addition(request, obj, f"Stopped. {f'Why: {obj.reason}' if obj.reason else ''}".strip())

    def delete_model(self, request: HttpRequest, obj: Stop) -> None:
        # Django logs deletions by itself.
        stops.resume(obj.chain_id, source=obj.source_chain_id, signer=obj.signer)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Stop]) -> None:
        with transaction.atomic():
            for stop in queryset:
                self.delete_model(request, stop)


# --- Rows that are shown ----------------------------------------------------------------------------------------------


@admin.register(Signer)
class SignerAdmin(OperatorAdmin[Signer]):
    search_help_text = "Finds an address."
    list_display = ("address", "chain_id", "notice", "due_at")
    exclude = ("lease_token", "paused_at", "paused_because")
    readonly_fields = ("related",)

    def found(self, rows: QuerySet[Signer], term: str) -> QuerySet[Signer]:
        return rows.filter(address=checksummed(term) or term)

    @admin.display(description="See also")
    def related(self, signer: Signer) -> str:
        return links(transactions=list_of(Transaction, signer__id__exact=signer.pk))


@admin.register(FactsRegistry)
class FactsRegistryAdmin(OperatorAdmin[FactsRegistry]):
    search_help_text = "Finds an address."
    list_display = ("address", "source_chain_id", "destination_chain_id", "deployed_at", "replaced_at", "refused")
    exclude = ("lease_token",)
    readonly_fields = ("related",)

    def found(self, rows: QuerySet[FactsRegistry], term: str) -> QuerySet[FactsRegistry]:
        return rows.filter(address=checksummed(term) or term)

    @admin.display(description="See also")
    def related(self, registry: FactsRegistry) -> str:
        chain = next((one for one in get_chains().chains if one.id == registry.destination_chain_id), None)
        elsewhere = f"{chain.explorer_url}/address/{registry.address}" if chain and chain.explorer_url else ""
        return links(
            transactions_that_extend_its_trust=list_of(Transaction, extends__id__exact=registry.pk),
            **({"the_chain's_explorer": elsewhere} if elsewhere else {}),
        )


@admin.register(Transaction)
class TransactionAdmin(OperatorAdmin[Transaction]):
    search_help_text = "Finds a hash of any version, and a nonce."
    links_by = frozenset(
        {"signer__id__exact", "extends__id__exact", "shares__batch__id__exact", "queries__block__id__exact"}
    )
    list_display = ("nonce", "signer", "state", "hash", "block_number", "succeeded", "spent_at", "last_error")
    list_select_related = ("signer",)
    exclude = ("data", "queries", "continued", "accumulates")
    readonly_fields = ("versions", "related")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Transaction]:
        return super().get_queryset(request).defer("data")

    def found(self, rows: QuerySet[Transaction], term: str) -> QuerySet[Transaction]:
        if term.isascii() and term.isdigit() and int(term) < 2**63:
            # The index begins with the signer.
            return rows.filter(signer__in=Signer.objects.all(), nonce=int(term))
        version = SignedTransaction.objects.filter(hash=term.lower()).values("transaction")
        return rows.filter(pk__in=version)

    @admin.display(description="Signed versions")
    def versions(self, tx: Transaction) -> str:
        versions = tx.versions.order_by("pk").defer("raw")
        return format_html(
            "{}", "\n".join(f"{one.hash}{' (a cancellation)' if one.is_cancellation else ''}" for one in versions)
        )

    @admin.display(description="See also")
    def related(self, tx: Transaction) -> str:
        pages = {
            f"page_of_{pk}": reverse("explorer:batch", args=[pk])
            for pk in tx.shares.order_by("batch").values_list("batch", flat=True)[:10]
        }
        chain = next((one for one in get_chains().chains if one.id == tx.signer.chain_id), None)
        if tx.hash and chain and chain.explorer_url:
            pages["the_chain's_explorer"] = f"{chain.explorer_url}/tx/{tx.hash}"
        return links(batches=list_of(Batch, shares__transaction__id__exact=tx.pk), **pages)
