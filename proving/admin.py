"""Admin pages: read-only lists of stops, signers, registries and transactions."""

from django.contrib import admin
from django.utils.html import format_html

from accounts.admin import ReadOnlyAdmin, brief
from proving.models import FactsRegistry, Signer, Stop, Transaction


@admin.register(Stop)
class StopAdmin(ReadOnlyAdmin):
    list_display = ("subject", "since", brief("By", "by"), "code", "reason")


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
