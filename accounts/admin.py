"""The admin's pages of users, API keys and the log of operators. They show no key, hash or salt.

The admin has no groups and no permissions: an operator may do everything that it offers.
"""

import re
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from accounts import keys
from accounts.models import EVERY_DESTINATION, ApiKey, User
from config.configured_chains import get_chains

admin.site.unregister(Group)
admin.site.site_title = admin.site.site_header = "Batch Query Service: operation"
# Lists need the width.
admin.site.enable_nav_sidebar = False

_LONG_VALUE = re.compile(r"(0x[0-9a-fA-F]{40,64})")


def _brief(title: str, column: str) -> Callable[[Any], SafeString]:
    """Return a column of a list. Addresses and hashes are shortened, with the whole as a tooltip."""

    @admin.display(description=title, ordering=column)
    def shown(row: Any) -> SafeString:
        return SafeString(
            "".join(
                format_html('<span class="nowrap" title="{}">{}…{}</span>', part, part[:6], part[-4:])
                if place % 2
                else conditional_escape(part)
                for place, part in enumerate(_LONG_VALUE.split(str(getattr(row, column))))
            )
        )

    return shown


class _ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    """A page that shows rows. Only its actions can change them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class _LimitsForm(forms.ModelForm):  # type: ignore[type-arg]  # as above
    def clean_daily_limits_wei(self) -> dict[str, str] | None:
        """Check that each key is a destination, `*` or already stored, and that each limit is a decimal string."""
        limits = self.cleaned_data["daily_limits_wei"]
        known = {
            EVERY_DESTINATION,
            *(str(chain.id) for chain in get_chains().destinations()),
            *(self.instance.daily_limits_wei or {}),
        }
        if limits and not (
            isinstance(limits, dict)
            and known.issuperset(limits)
            and all(isinstance(wei, str) and wei.isdecimal() for wei in limits.values())
        ):
            raise forms.ValidationError('Write {"id of a destination": "wei in 24 hours"}, all in decimal digits.')
        return limits or None


@admin.register(User)
class UserAdmin(_ReadOnlyAdmin):
    """Sets a user's own limits. If a limit is empty, the installation's limit applies."""

    form = _LimitsForm
    search_fields = ("=address",)
    list_display = ("address", "chain_id", "created_at", "last_sign_in")
    readonly_fields = list_display
    fields = (
        *readonly_fields,
        *("max_batches_per_minute", "max_queries_per_minute"),
        *("max_open_batches", "max_open_queries", "daily_limits_wei"),
    )
    actions = ("revoke_keys",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_staff

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:  # noqa: FBT001, FBT002 (Django's signature)
        """Return each changed limit with its old and new value."""
        return "; ".join(f"{name}: {form.initial[name]} → {form.cleaned_data[name]}" for name in form.changed_data)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:  # noqa: FBT001 (as above)
        # Saving every field could undo "sign out everywhere" if the user does that meanwhile.
        obj.save(update_fields=form.changed_data)

    @admin.action(description="Revoke all keys of the users, for good")
    @transaction.atomic
    def revoke_keys(self, request: HttpRequest, users: QuerySet[User]) -> None:
        count = keys.revoke_by_operator(users)
        for user in users:
            self.log_change(request, user, "Revoked all keys.")
        self.message_user(request, f"{count} keys were revoked.")


@admin.register(ApiKey)
class ApiKeyAdmin(_ReadOnlyAdmin):
    search_fields = ("=user__address", "=last_four")
    fields = ("ends", "name", "access", "user", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_display = (*fields[:3], _brief("User", "user"), *fields[4:])
    list_select_related = ("user",)
    ordering = ("-pk",)


@admin.register(LogEntry)
class LogEntryAdmin(_ReadOnlyAdmin):
    search_fields = ("=user__address",)
    list_display = (
        *("action_time", _brief("User", "user"), "content_type", _brief("Object", "object_repr")),
        "get_change_message",
    )
    list_select_related = ("user", "content_type")
