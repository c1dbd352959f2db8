"""Limits of users in wei instead of gas. The column of gas stays as it was: the last version reads it."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from accounts.models import EVERY_DESTINATION, daily_wei
from config.configured_chains import get_chains


def to_wei(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Write gas as what it costs at the chain's cap of fees, where that is less than the limit in wei; 0 stays 0."""
    limited = apps.get_model("accounts", "User").objects.exclude(daily_gas_budget=None)
    if not limited.exists():
        return
    destinations = [chain for chain in get_chains().destinations() if not chain.test_network]
    named = {str(chain.id) for chain in destinations}
    for user in limited:
        own = dict(user.daily_limits_wei or {})
        if user.daily_gas_budget == 0:
            own = {chain_id: wei for chain_id, wei in own.items() if chain_id not in named} | {EVERY_DESTINATION: "0"}
        for chain in destinations if user.daily_gas_budget else ():
            most, wei = daily_wei(own, chain), user.daily_gas_budget * chain.max_fee_per_gas
            if most is None or wei < most:
                own[str(chain.id)] = str(wei)
        user.daily_limits_wei = own or None
        user.save(update_fields=["daily_limits_wei"])


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_log_of_operators")]

    operations = [migrations.RunPython(to_wei, migrations.RunPython.noop)]
