from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts import checks  # noqa: F401, PLC0415 (importing registers them, which needs loaded apps)
        from config.database import lookups  # noqa: PLC0415 (same)

        lookups.register()
