"""What of proving the operator sees and decides in the admin."""

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from accounts import operator_log
from accounts.models import AdminActionKind, User
from accounts.operator_pages import AdminAction, AdminActionRefused, OperatorAdmin, links, list_of
from chains.address_checksum import checksummed
from config.configured_chains import get_chains
from proving.models import ConnectionPause, FactsRegistry, SignedTransaction, Signer, SigningStop, Transaction
from proving.transactions import pauses, stop_switch
from queries.models import Batch

if TYPE_CHECKING:
    _StopForm = forms.ModelForm[SigningStop]
    _PauseForm = forms.ModelForm[ConnectionPause]
    _StopAdmin = admin.ModelAdmin[SigningStop]
    _PauseAdmin = admin.ModelAdmin[ConnectionPause]
else:
    # Not subscriptable at run time.
    _StopForm, _PauseForm, _StopAdmin, _PauseAdmin = (forms.ModelForm, forms.ModelForm, *[admin.ModelAdmin] * 2)

_REASON = "A sentence. Users see it on the pages of batches that wait."


def _record(request: HttpRequest, kind: AdminActionKind, subject: str, reason: str = "") -> None:
    assert isinstance(request.user, User)
    operator_log.record(request.user.address, kind, subject, reason=reason)


# --- Switches: adding one stops, deleting it takes that back ----------------------------------------------------------


class _SigningStopForm(_StopForm):
    chain_id = forms.TypedChoiceField(
        label="Destination chain",
        coerce=int,
        choices=lambda: [(chain.id, chain.label) for chain in get_chains().destinations()],
    )

    class Meta:
        model = SigningStop
        fields: ClassVar = ["chain_id", "reason"]
        help_texts: ClassVar = {"reason": _REASON}


@admin.register(SigningStop)
class SigningStopAdmin(_StopAdmin):
    """Adding one stops all sending on its chain before the next signature; deleting it takes that back."""

    form = _SigningStopForm
    list_display = ("chain_id", "since", "reason")

    def has_change_permission(self, request: HttpRequest, obj: SigningStop | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: SigningStop, form: Any, change: bool) -> None:  # noqa: FBT001 (Django's signature)
        obj.pk = stop_switch.stop(obj.chain_id, obj.reason).pk
        _record(request, AdminActionKind.STOPPED, f"chain {obj.chain_id}", obj.reason)

    def delete_model(self, request: HttpRequest, obj: SigningStop) -> None:
        if stop_switch.resume(obj.chain_id):
            _record(request, AdminActionKind.RESUMED, f"chain {obj.chain_id}")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[SigningStop]) -> None:
        with transaction.atomic():
            for stop in queryset:
                self.delete_model(request, stop)


class _ConnectionPauseForm(_PauseForm):
    connection = forms.ChoiceField(
        choices=lambda: [
            (
                f"{each.source_id}-{each.destination_id}",
                f"{get_chains().chain(each.source_id).label} to {get_chains().chain(each.destination_id).label}",
            )
            for each in get_chains().connections
        ],
    )

    class Meta:
        model = ConnectionPause
        fields: ClassVar = ["connection", "reason"]
        help_texts: ClassVar = {"reason": _REASON}


@admin.register(ConnectionPause)
class ConnectionPauseAdmin(_PauseAdmin):
    """Adding one keeps anything new from being sent for its connection; deleting it takes that back."""

    form = _ConnectionPauseForm
    list_display = ("source_chain_id", "destination_chain_id", "since", "reason")

    def has_change_permission(self, request: HttpRequest, obj: ConnectionPause | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ConnectionPause, form: Any, change: bool) -> None:  # noqa: FBT001 (Django's signature)
        obj.source_chain_id, obj.destination_chain_id = map(int, form.cleaned_data["connection"].split("-"))
        obj.pk = pauses.pause_connection(obj.source_chain_id, obj.destination_chain_id, obj.reason).pk
        _record(request, AdminActionKind.PAUSED_CONNECTION, self._subject(obj), obj.reason)

    def delete_model(self, request: HttpRequest, obj: ConnectionPause) -> None:
        if pauses.resume_connection(obj.source_chain_id, obj.destination_chain_id):
            _record(request, AdminActionKind.RESUMED_CONNECTION, self._subject(obj))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ConnectionPause]) -> None:
        with transaction.atomic():
            for pause in queryset:
                self.delete_model(request, pause)

    @staticmethod
    def _subject(pause: ConnectionPause) -> str:
        return f"{pause.source_chain_id} to {pause.destination_chain_id}"


# --- Rows that are shown ----------------------------------------------------------------------------------------------


def _pause_signer(signer: Signer, form: dict[str, Any]) -> str:
    pauses.pause_signer(signer.chain_id, signer.address, form["reason"])
    return ""


def _resume_signer(signer: Signer, _: dict[str, Any]) -> str:
    if not pauses.resume_signer(signer.chain_id, signer.address):
        raise AdminActionRefused("The signer was not paused.")
    return ""


@admin.register(Signer)
class SignerAdmin(OperatorAdmin[Signer]):
    search_help_text = "Finds an address."
    list_display = ("address", "chain_id", "notice", "paused_at", "due_at")
    exclude = ("lease_token",)
    readonly_fields = ("related",)
    row_actions = (
        AdminAction(
            "pause",
            "Pause the signer",
            "It signs and broadcasts nothing more, before the next signature. Others of its chain send instead; where "
            "there is none, batches wait, and users see why.",
            AdminActionKind.PAUSED_SIGNER,
            _pause_signer,
            is_offered=lambda signer: signer.paused_at is None,
        ),
        AdminAction(
            "resume",
            "Resume the signer",
            "It sends again, and broadcasts again what it had signed before.",
            AdminActionKind.RESUMED_SIGNER,
            _resume_signer,
            is_offered=lambda signer: signer.paused_at is not None,
        ),
    )

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
