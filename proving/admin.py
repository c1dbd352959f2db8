"""What of proving the operator decides in the admin."""

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from config.configured_chains import get_chains
from proving.models import SigningStop
from proving.transactions import stop_switch

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[SigningStop]
    _ModelAdmin = admin.ModelAdmin[SigningStop]
else:
    _ModelForm, _ModelAdmin = forms.ModelForm, admin.ModelAdmin  # not subscriptable at run time


class _SigningStopForm(_ModelForm):
    chain_id = forms.TypedChoiceField(
        label="Destination chain",
        coerce=int,
        choices=lambda: [(chain.id, chain.label) for chain in get_chains().destinations()],
    )

    class Meta:
        model = SigningStop
        fields: ClassVar = ["chain_id", "reason"]
        help_texts: ClassVar = {"reason": "A sentence. Users see it on the pages of batches that wait."}


@admin.register(SigningStop)
class SigningStopAdmin(_ModelAdmin):
    """Adding one stops all sending on its chain before the next signature; deleting it takes that back."""

    form = _SigningStopForm
    list_display = ("chain_id", "since", "reason")

    def has_change_permission(self, request: HttpRequest, obj: SigningStop | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: SigningStop, form: Any, change: bool) -> None:  # noqa: FBT001 (Django's signature)
        obj.pk = stop_switch.stop(obj.chain_id, obj.reason).pk

    def delete_model(self, request: HttpRequest, obj: SigningStop) -> None:
        stop_switch.resume(obj.chain_id)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[SigningStop]) -> None:
        for stop in queryset:
            self.delete_model(request, stop)
