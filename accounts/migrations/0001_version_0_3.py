"""The schema of version 0.3.0, whose migrations it replaces."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("accounts", "0001_before_0_3"),
        ("accounts", "0002_version_0_3"),
        ("accounts", "0003_contract_wallets"),
        ("accounts", "0004_key_access"),
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="SignInNonce",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("nonce", models.CharField(max_length=40, unique=True)),
                ("address", models.CharField(max_length=42)),
                ("message_hash", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField(db_index=True)),
                ("consumed_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ThrottleCount",
            fields=[
                ("what_and_who", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField(db_index=True)),
                ("used", models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("address", models.CharField(max_length=42)),
                ("chain_id", models.PositiveBigIntegerField(blank=True, null=True)),
                ("own_key_known", models.BooleanField(db_default=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("last_sign_in", models.DateTimeField(null=True)),
                ("max_batches_per_minute", models.PositiveBigIntegerField(blank=True, null=True)),
                ("max_queries_per_minute", models.PositiveBigIntegerField(blank=True, null=True)),
                ("max_open_batches", models.PositiveBigIntegerField(blank=True, null=True)),
                ("max_open_queries", models.PositiveBigIntegerField(blank=True, null=True)),
                ("daily_limits_wei", models.JSONField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("chain_id", None)), fields=("address",), name="one_user_per_own_key"
                    ),
                    models.UniqueConstraint(fields=("address", "chain_id"), name="one_user_per_contract_wallet"),
                ],
            },
        ),
        migrations.CreateModel(
            name="AccountEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("signed_in", "Signed in"),
                            ("signed_out", "Signed out"),
                            ("signed_out_everywhere", "Signed out everywhere"),
                            ("key_made", "Key created"),
                            ("key_shown", "Key shown or copied"),
                            ("key_rotated", "Key rotated"),
                            ("key_revoked", "Key revoked"),
                            ("webhook_secret_shown", "Webhook secret shown or copied"),
                            ("webhook_secret_rotated", "Webhook secret rotated"),
                        ],
                        max_length=30,
                    ),
                ),
                ("key_name", models.CharField(default="", max_length=60)),
                ("key_ends", models.CharField(default="", max_length=20)),
                ("detail", models.CharField(default="", max_length=200)),
                ("client_network", models.CharField(default="", max_length=50)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="events", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["user", "-id"], name="accounts_ac_user_id_0688e2_idx")],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("salt", models.BinaryField(max_length=32)),
                ("key_hash", models.CharField(max_length=64, unique=True)),
                ("prefix", models.CharField(max_length=12)),
                ("last_four", models.CharField(max_length=4)),
                (
                    "access",
                    models.CharField(
                        choices=[("full", "Full access"), ("read", "Read only")],
                        db_default="full",
                        default="full",
                        max_length=4,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("last_used_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_keys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("revoked_at", None)),
                        fields=("user", "name"),
                        name="api_key_name_unique_per_user",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sealed", models.BinaryField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webhook_secrets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("expires_at", None)),
                        fields=("user",),
                        name="one_webhook_secret_without_end",
                    )
                ],
            },
        ),
    ]
