"""Who may read the metrics, and where workers serve theirs."""

from ipaddress import ip_network

from django.core.exceptions import ImproperlyConfigured

from config.environment import env_hidden, env_int, env_list

# A bearer token that also grants access: `Authorization: Bearer …`.
METRICS_TOKEN = env_hidden("METRICS_TOKEN")
# Who else may: clients of these networks, and by default of this machine alone.
_networks = env_list("METRICS_ALLOWED_NETWORKS", "127.0.0.0/8,::1")
try:
    METRICS_ALLOWED_NETWORKS = [ip_network(network) for network in _networks]
except ValueError as error:
    raise ImproperlyConfigured(f"METRICS_ALLOWED_NETWORKS must be networks such as 10.0.0.0/8: {error}.") from None
# Where a worker serves its own; 0: nowhere.
METRICS_PORT = env_int("METRICS_PORT", 0)
