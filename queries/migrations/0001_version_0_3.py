"""The schema of version 0.3.0, whose migrations it replaces."""

import django.db.models.deletion
import django.utils.timezone
import queries.columns
import queries.models
import queries.waits
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("queries", "0001_before_0_3"),
        ("queries", "0002_version_0_3"),
        ("queries", "0003_transactions"),
        ("queries", "0004_test_events"),
        ("queries", "0005_slot_names"),
        ("queries", "0006_batches"),
    ]

    dependencies = [
        ("accounts", "0001_version_0_3"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                (
                    "id",
                    models.CharField(
                        default=queries.models.new_batch_id,
                        editable=False,
                        max_length=26,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("destination_chain_id", models.PositiveBigIntegerField()),
                (
                    "sender",
                    models.CharField(
                        choices=[("operator", "Operator"), ("self", "Self")],
                        db_default="operator",
                        default="operator",
                        max_length=8,
                    ),
                ),
                ("fee", queries.columns.Uint256Field()),
                ("fee_is_estimate", models.BooleanField(db_default=False, default=False)),
                ("request", models.TextField()),
                ("size", models.PositiveIntegerField(default=0)),
                ("block_count", models.PositiveIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("RECEIVED", "Received"),
                            ("ACCEPTED", "Accepted"),
                            ("IN_PROGRESS", "In Progress"),
                            ("DONE", "Done"),
                            ("REJECTED", "Rejected"),
                        ],
                        default="RECEIVED",
                        max_length=16,
                    ),
                ),
                ("wait", queries.waits.WaitField(blank=True, null=True)),
                ("waiting_for", models.TextField(blank=True)),
                ("looked_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ("accepted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("deadline_at", models.DateTimeField()),
                ("overdue_since", models.DateTimeField(blank=True, null=True)),
                ("went_back_at", models.DateTimeField(null=True)),
                ("went_back_because", models.TextField(blank=True)),
                ("estimated_gas", models.PositiveBigIntegerField(null=True)),
                ("estimated_wei", queries.columns.Uint256Field(null=True)),
                ("gas_used", models.PositiveBigIntegerField(default=0)),
                ("spent", queries.columns.Uint256Field(default=0)),
                ("proofs_pruned_at", models.DateTimeField(null=True)),
                ("proofs_gone_at", models.DateTimeField(null=True)),
                ("steps_pruned_at", models.DateTimeField(null=True)),
                ("steps_gone_at", models.DateTimeField(null=True)),
                ("rejecting_checks", models.PositiveIntegerField(db_default=0, default=0)),
                ("rejection_code", models.CharField(blank=True, max_length=40)),
                ("rejection_reason", models.TextField(blank=True)),
                ("rejected_because", queries.waits.WaitField(blank=True, null=True)),
                ("rejection_retryable", models.BooleanField(default=False)),
                (
                    "api_key",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="batches", to="accounts.apikey"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="batches", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "batches",
            },
        ),
        migrations.CreateModel(
            name="Pruning",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="ServiceClock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="StorageCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                (
                    "batch",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="webhook",
                        serialize=False,
                        to="queries.batch",
                    ),
                ),
                ("receiver", models.CharField(max_length=270)),
                ("sealed", models.BinaryField()),
                ("events", models.JSONField(default=list)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Block",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("destination_chain_id", models.PositiveBigIntegerField()),
                ("source_chain_id", models.PositiveBigIntegerField()),
                ("number", models.PositiveBigIntegerField()),
                ("hash", models.CharField(blank=True, max_length=66)),
                ("header_rlp", models.BinaryField(null=True)),
                ("state_root", models.CharField(blank=True, max_length=66)),
                ("timestamp", models.PositiveBigIntegerField(null=True)),
                ("refused_since", models.DateTimeField(null=True)),
                ("is_checkpoint", models.BooleanField(default=False)),
                (
                    "path_unit",
                    models.CharField(blank=True, choices=[("hops", "Hops"), ("jumps", "Jumps")], max_length=8),
                ),
                ("path_length", models.PositiveIntegerField(default=0)),
                ("path_left", models.PositiveIntegerField(default=0)),
                ("path_origin", models.PositiveBigIntegerField(null=True)),
                ("wait", queries.waits.WaitField(blank=True, null=True)),
                ("waiting_for", models.TextField(blank=True)),
                ("looked_at", models.DateTimeField(null=True)),
                ("waits_for_path", models.BooleanField(default=False)),
                ("checked_number", models.PositiveBigIntegerField(null=True)),
                ("checked_hash", models.CharField(blank=True, max_length=66)),
                (
                    "queued_for",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                ("body_hash", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(db_index=True)),
                (
                    "batch",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="queries.batch",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Query",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source_chain_id", models.PositiveBigIntegerField()),
                ("timestamp", models.PositiveBigIntegerField(null=True)),
                (
                    "block_tag",
                    models.CharField(
                        blank=True,
                        choices=[("latest", "Latest"), ("finalized", "Finalized")],
                        db_default="",
                        default="",
                        max_length=16,
                    ),
                ),
                ("block_of", models.CharField(blank=True, db_default="", default="", max_length=66)),
                ("position", models.PositiveIntegerField()),
                ("address", models.CharField(blank=True, max_length=42)),
                ("transaction_name", models.CharField(blank=True, db_default="", default="", max_length=66)),
                ("transaction_index", models.PositiveIntegerField(null=True)),
                ("name", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("fields", models.PositiveIntegerField(default=0)),
                ("slots", models.JSONField(default=list)),
                ("slot_names", models.JSONField(db_default={}, default=dict)),
                ("logs", models.JSONField(db_default=[], default=list)),
                ("block_logs", models.JSONField(db_default=[], default=list)),
                ("first_log", models.PositiveIntegerField(null=True)),
                (
                    "step",
                    models.CharField(
                        choices=[
                            ("INITIAL_STATE", "Initial State"),
                            ("BLOCKHASH_AVAILABLE", "Blockhash Available"),
                            ("HEADER_ACCUMULATED", "Header Accumulated"),
                            ("ACCOUNT_ACCUMULATED", "Account Accumulated"),
                        ],
                        default="INITIAL_STATE",
                        max_length=24,
                        null=True,
                    ),
                ),
                (
                    "batch",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queries",
                        to="queries.batch",
                    ),
                ),
                (
                    "block",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="queries",
                        to="queries.block",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("INITIAL_STATE", "Initial State"),
                            ("BLOCKHASH_AVAILABLE", "Blockhash Available"),
                            ("HEADER_ACCUMULATED", "Header Accumulated"),
                            ("ACCOUNT_ACCUMULATED", "Account Accumulated"),
                        ],
                        max_length=24,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[("IN_PROGRESS", "In Progress"), ("COMPLETED", "Completed")],
                        default="IN_PROGRESS",
                        max_length=16,
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("completed_at", models.DateTimeField(null=True)),
                ("transaction_hash", models.CharField(blank=True, max_length=66)),
                ("error", queries.waits.WaitField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True)),
                ("went_back_at", models.DateTimeField(null=True)),
                ("went_back_because", models.TextField(blank=True)),
                (
                    "query",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="queries.query",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.CharField(default=queries.models.new_message_id, max_length=30, unique=True)),
                (
                    "event",
                    models.CharField(
                        choices=[
                            ("DONE", "Done"),
                            ("REJECTED", "Rejected"),
                            ("WENT_BACK", "Went Back"),
                            ("STEP", "Step"),
                            ("TEST", "Test"),
                        ],
                        max_length=16,
                    ),
                ),
                ("body", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[("PENDING", "Pending"), ("DELIVERED", "Delivered"), ("FAILED", "Failed")],
                        default="PENDING",
                        max_length=16,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("next_try_at", models.DateTimeField(null=True)),
                ("gives_up_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(db_index=True, null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("attempts", models.JSONField(default=list)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "webhook",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="queries.webhook",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "webhook deliveries",
            },
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["status", "deadline_at"], name="queries_bat_status_7b1923_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["finished_at"], name="queries_bat_finishe_6ead0b_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["user", "created_at"], name="queries_bat_user_id_62c721_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["user", "id"], name="queries_bat_user_id_ff05f8_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["user", "status"], name="queries_bat_user_id_e2bd26_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(fields=["api_key", "created_at"], name="queries_bat_api_key_d4a505_idx"),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(
                condition=models.Q(("proofs_gone_at__isnull", True)), fields=["finished_at"], name="batches_with_proofs"
            ),
        ),
        migrations.AddIndex(
            model_name="batch",
            index=models.Index(
                condition=models.Q(("steps_gone_at__isnull", True)), fields=["finished_at"], name="batches_with_steps"
            ),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(fields=["number"], name="queries_blo_number_f8e821_idx"),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(fields=["hash"], name="queries_blo_hash_d23370_idx"),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(
                fields=["destination_chain_id", "source_chain_id", "is_checkpoint", "number"], name="checkpoints"
            ),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["destination_chain_id", "source_chain_id", "due_at", "queued_for"],
                name="due_blocks",
            ),
        ),
        migrations.AddIndex(
            model_name="block",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["queued_for"], name="blocks_due_by_user"
            ),
        ),
        migrations.AddConstraint(
            model_name="block",
            constraint=models.UniqueConstraint(
                fields=("destination_chain_id", "source_chain_id", "number"), name="one_block_per_connection"
            ),
        ),
        migrations.AddConstraint(
            model_name="idempotencykey",
            constraint=models.UniqueConstraint(fields=("user", "key"), name="one_batch_per_idempotency_key"),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(fields=["block", "step"], name="queries_que_block_i_17060e_idx"),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(fields=["batch", "step"], name="queries_que_batch_i_d1badb_idx"),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(fields=["batch", "block"], name="queries_que_batch_i_447329_idx"),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(fields=["address"], name="queries_que_address_039ea7_idx"),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(
                condition=models.Q(("step__isnull", True)), fields=["address", "block"], name="facts_by_account"
            ),
        ),
        migrations.AddConstraint(
            model_name="query",
            constraint=models.UniqueConstraint(fields=("batch", "position"), name="one_query_per_position"),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(fields=("query", "kind"), name="one_step_of_each_kind"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["webhook", "status"], name="queries_web_webhook_b94309_idx"),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(fields=["user", "id"], name="queries_web_user_id_ee2b2a_idx"),
        ),
        migrations.AddIndex(
            model_name="webhook",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["user", "due_at"], name="webhooks_due"
            ),
        ),
        migrations.AddIndex(
            model_name="webhook",
            index=models.Index(fields=["user", "batch"], name="queries_web_user_id_e065a8_idx"),
        ),
    ]
