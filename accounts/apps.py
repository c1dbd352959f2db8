from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts import checks  # noqa: F401, PLC0415 (importing registers them, which needs loaded apps)
