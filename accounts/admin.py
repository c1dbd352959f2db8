"""Users, their API keys, and the log of operators, in the admin. A key itself, its hash and its salt are not there.

The admin has no groups and no permissions: an operator may do everything that it offers.
"""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts import keys
from accounts.models import ApiKey, User
from accounts.operator_pages import AdminActionForm, AdminActionRefused, OperatorAdmin, links, list_of, row_action
from chains.address_checksum import checksummed
from config.configured_chains import get_chains

admin.site.unregister(Group)

_LIMITS = (
    "daily_gas_budget",
    "max_batches_per_minute",
    "max_queries_per_minute",
    "max_open_batches",
    "max_open_queries",
)
_WEI = 10**18


class _LimitsForm(AdminActionForm):
    """An empty field is the installation's limit."""

    daily_gas_budget = forms.IntegerField(min_value=0, max_value=2**62, required=False)
    max_batches_per_minute = forms.IntegerField(min_value=0, max_value=2**62, required=False)
    max_queries_per_minute = forms.IntegerField(min_value=0, max_value=2**62, required=False)
    max_open_batches = forms.IntegerField(min_value=0, max_value=2**62, required=False)
    max_open_queries = forms.IntegerField(min_value=0, max_value=2**62, required=False)

    field_order = (*_LIMITS, "reason")

    def __init__(self, *args: Any, row: User, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        reason = self.fields.pop("reason")
        for name in _LIMITS:
            self.fields[name].label = name.upper()
            self.initial[name] = getattr(row, name)
        own = row.daily_limits_wei or {}
        for chain in get_chains().destinations():
            name = f"daily_limit_{chain.id}"
            self.fields[name] = forms.DecimalField(
                min_value=0,
                max_digits=40,
                decimal_places=18,
                required=False,
                label=f"daily_limit_per_user on {chain.label}, in {chain.native_currency}",
            )
            if (wei := own.get(str(chain.id))) is not None:
                self.initial[name] = Decimal(wei) / _WEI
        self.fields["reason"] = reason


def _set_limits(user: User, form: dict[str, Any]) -> str:
    # Of chains that are no destinations any more nothing was asked.
    wei = dict(user.daily_limits_wei or {})
    wanted: dict[str, int | None] = {name: form[name] for name in _LIMITS}
    changes = [
        f"{name} from {_shown(getattr(user, name))} to {_shown(most)}"
        for name, most in wanted.items()
        if getattr(user, name) != most
    ]
    for chain in get_chains().destinations():
        before, amount = wei.pop(str(chain.id), None), form[f"daily_limit_{chain.id}"]
        after = None if amount is None else str(int(amount * _WEI))
        if after is not None:
            wei[str(chain.id)] = after
        if before != after:
            changes.append(f"daily_limit_per_user on chain {chain.id} from {_shown(before)} to {_shown(after)} wei")
    if not changes:
        raise AdminActionRefused("Nothing was changed.")
    User.objects.filter(pk=user.pk).update(**wanted, daily_limits_wei=wei or None)
    return f"{'; '.join(changes)}."


def _shown(limit: int | str | None) -> str:
    return "the installation's" if limit is None else str(limit)


def _revoke_keys(user: User, _: dict[str, Any]) -> str:
    return f"{keys.revoke_by_operator(User.objects.filter(pk=user.pk))} keys."


@admin.register(User)
class UserAdmin(OperatorAdmin[User]):
    search_help_text = "Finds an address."
    list_display = ("address", "created_at", "last_sign_in")
    fields = ("address", "created_at", "last_sign_in", *_LIMITS, "daily_limits_wei", "related")
    readonly_fields = ("related",)
    actions = (
        row_action(
            "limits",
            "Set limits",
            "These limits replace the installation's for this user. An empty field keeps the installation's limit.",
            _set_limits,
            form=_LimitsForm,
        ),
        row_action(
            "revoke_keys",
            "Revoke all keys",
            "The user's keys stop working at once, for good. Batches go on, and the user can make new keys.",
            _revoke_keys,
        ),
    )

    def found(self, rows: QuerySet[User], term: str) -> QuerySet[User]:
        return rows.filter(address=checksummed(term) or term)

    @admin.display(description="See also")
    def related(self, user: User) -> str:
        # Batches are another application's, which this one doesn't know.
        batches = f"{reverse('admin:queries_batch_changelist')}?user__id__exact={user.pk}"
        return links(batches=batches, keys=list_of(ApiKey, user__id__exact=user.pk))


@admin.register(ApiKey)
class ApiKeyAdmin(OperatorAdmin[ApiKey]):
    search_help_text = "Finds the last four characters of a key, and all keys of an address."
    links_by = frozenset({"user__id__exact"})
    list_display = ("ends", "name", "user", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_select_related = ("user",)
    fields = ("ends", "name", "user", "created_at", "last_used_at", "expires_at", "revoked_at", "related")
    readonly_fields = ("ends", "related")

    def get_queryset(self, request: Any) -> QuerySet[ApiKey]:
        return super().get_queryset(request).defer("salt", "key_hash")

    def found(self, rows: QuerySet[ApiKey], term: str) -> QuerySet[ApiKey]:
        return rows.filter(Q(user__address=checksummed(term) or term) | Q(last_four=term))

    @admin.display(description="See also")
    def related(self, key: ApiKey) -> str:
        return links(batches=f"{reverse('admin:queries_batch_changelist')}?api_key__id__exact={key.pk}")


@admin.register(LogEntry)
class LogEntryAdmin(OperatorAdmin[LogEntry]):
    search_help_text = "Finds an operator's address."
    list_display = ("action_time", "operator", "content_type", "object_repr", "get_change_message")
    list_select_related = ("user", "content_type")

    def found(self, rows: QuerySet[LogEntry], term: str) -> QuerySet[LogEntry]:
        return rows.filter(user__address=checksummed(term) or term)

    @admin.display(description="Operator")
    def operator(self, entry: LogEntry) -> str:
        return entry.user.address
