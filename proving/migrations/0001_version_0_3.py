"""The schema of version 0.3.0, whose migrations it replaces."""

import django.db.models.deletion
import django.utils.timezone
import proving.models
import queries.columns
import queries.waits
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("proving", "0001_before_0_3"),
        ("proving", "0002_version_0_3"),
        ("proving", "0003_reader"),
        ("proving", "0004_transactions"),
        ("proving", "0005_problem_reports"),
        ("proving", "0006_problem_absent_since"),
        ("proving", "0007_signing_problem"),
        ("proving", "0008_lane_advanced_at"),
    ]

    dependencies = [
        ("queries", "0001_version_0_3"),
    ]

    operations = [
        migrations.CreateModel(
            name="ChainHead",
            fields=[
                ("chain_id", models.PositiveBigIntegerField(primary_key=True, serialize=False)),
                ("number", models.PositiveBigIntegerField()),
                ("final", models.PositiveBigIntegerField()),
                ("seen_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="ChainWatch",
            fields=[
                ("chain_id", models.PositiveBigIntegerField(primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("looked_at", models.DateTimeField(null=True)),
                ("timestamp", models.PositiveBigIntegerField(null=True)),
                ("problems", models.JSONField(default=list)),
                ("number", models.PositiveBigIntegerField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                ("final", models.PositiveBigIntegerField(null=True)),
                ("gas_price", queries.columns.Uint256Field(null=True)),
                ("keeps_hashes", models.BooleanField(null=True)),
                ("balances", models.JSONField(default=dict, null=True)),
                ("resting_nodes", models.JSONField(db_default=[], default=list)),
                ("spent_in_day", queries.columns.Uint256Field(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Lane",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("token", models.CharField(blank=True, max_length=32)),
                ("until", models.DateTimeField(null=True)),
                ("advanced_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WorkerHeartbeat",
            fields=[
                ("worker", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("beat_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="AccountProof",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=42)),
                ("nodes", models.JSONField()),
                ("nonce", queries.columns.Uint256Field()),
                ("balance", queries.columns.Uint256Field()),
                ("storage_root", models.CharField(max_length=66)),
                ("code_hash", models.CharField(max_length=66)),
                (
                    "block",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="account_proofs", to="queries.block"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AttesterWatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source_chain_id", models.PositiveBigIntegerField()),
                ("destination_chain_id", models.PositiveBigIntegerField()),
                ("asked_at", models.DateTimeField(null=True)),
                ("answered_at", models.DateTimeField(null=True)),
                ("block", models.PositiveBigIntegerField(null=True)),
                ("answers", models.JSONField(default=list)),
            ],
            options={
                "verbose_name_plural": "attester watches",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("destination_chain_id", "source_chain_id"), name="one_watch_per_connection"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="BeaconAnchor",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("chain_id", models.PositiveBigIntegerField()),
                ("root", models.CharField(max_length=66)),
                ("slot", models.PositiveBigIntegerField()),
                ("proposer", models.PositiveBigIntegerField()),
                ("parent_root", models.CharField(max_length=66)),
                ("state_root", models.CharField(max_length=66)),
                ("body_root", models.CharField(max_length=66)),
                ("summaries", models.BinaryField()),
                ("branch", models.BinaryField()),
                ("used_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "root"), name="one_anchor_per_beacon_block")
                ],
            },
        ),
        migrations.CreateModel(
            name="BlockTrie",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "root",
                    models.PositiveSmallIntegerField(
                        choices=[
                            (0, "Parent Hash"),
                            (1, "Uncles Hash"),
                            (2, "Coinbase"),
                            (3, "State Root"),
                            (4, "Transactions Root"),
                            (5, "Receipts Root"),
                            (6, "Logs Bloom"),
                            (7, "Difficulty"),
                            (8, "Block Number"),
                            (9, "Gas Limit"),
                            (10, "Gas Used"),
                            (11, "Timestamp"),
                            (12, "Extra Data"),
                            (13, "Mix Hash"),
                            (14, "Nonce"),
                            (15, "Base Fee Per Gas"),
                            (16, "Withdrawals Root"),
                            (17, "Blob Gas Used"),
                            (18, "Excess Blob Gas"),
                            (19, "Parent Beacon Block Root"),
                            (20, "Requests Hash"),
                        ]
                    ),
                ),
                ("count", models.PositiveIntegerField()),
                ("compressed", models.BinaryField()),
                (
                    "block",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tries",
                        to="queries.block",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="FactsRegistry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("destination_chain_id", models.PositiveBigIntegerField()),
                ("source_chain_id", models.PositiveBigIntegerField()),
                ("address", models.CharField(max_length=42)),
                ("block_hash_source", models.CharField(max_length=42)),
                ("history_window", models.PositiveBigIntegerField(default=8191)),
                ("multicall", models.CharField(blank=True, max_length=42)),
                ("beacon_history", models.CharField(blank=True, db_default="", default="", max_length=42)),
                ("reader", models.CharField(blank=True, db_default="", default="", max_length=42)),
                ("jump_origin", models.PositiveBigIntegerField(null=True)),
                ("wait", queries.waits.WaitField(blank=True, null=True)),
                ("waiting_for", models.TextField(blank=True)),
                ("notice", models.TextField(blank=True)),
                ("deployed_at", models.DateTimeField(null=True)),
                ("code_hash", models.CharField(blank=True, max_length=66)),
                ("refused", models.TextField(blank=True)),
                ("replaced_at", models.DateTimeField(null=True)),
                ("replaced_because", models.TextField(blank=True)),
            ],
            options={
                "verbose_name_plural": "facts registries",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("replaced_at", None)),
                        fields=("destination_chain_id", "source_chain_id"),
                        name="one_registry_in_use_per_connection",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JumpLeaves",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("chain_id", models.PositiveBigIntegerField()),
                ("kind", models.CharField(choices=[("period", "Period"), ("epoch", "Epoch")], max_length=6)),
                ("number", models.PositiveIntegerField()),
                ("content", models.BinaryField(default=b"")),
                ("is_complete", models.BooleanField(default=False)),
                ("problem", models.TextField(blank=True, db_default="", default="")),
                ("used_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name_plural": "jump leaves",
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "kind", "number"), name="one_row_of_leaves_per_tree")
                ],
            },
        ),
        migrations.CreateModel(
            name="ProblemReport",
            fields=[
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                (
                    "id",
                    models.CharField(
                        default=proving.models.new_problem_id, max_length=40, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.CharField(max_length=250)),
                ("code", models.CharField(max_length=40)),
                ("sentence", models.TextField(blank=True)),
                ("values", models.JSONField(default=dict)),
                ("began_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("absent_since", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("is_told", models.BooleanField(default=False)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)), fields=("key",), name="one_open_report_of_each_problem"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ProvenTransaction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveIntegerField()),
                ("receipt", models.BinaryField()),
                ("hash", models.CharField(blank=True, max_length=66)),
                ("receipt_size", models.PositiveIntegerField()),
                ("log_count", models.PositiveIntegerField()),
                ("transaction_size", models.PositiveIntegerField(default=0)),
                (
                    "block",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="proven_transactions",
                        to="queries.block",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Signer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("chain_id", models.PositiveBigIntegerField()),
                ("address", models.CharField(max_length=42)),
                ("wait", queries.waits.WaitField(blank=True, null=True)),
                ("notice", models.TextField(blank=True)),
                ("final_count", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("final_failures", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("final_gas", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("final_wei", queries.columns.Uint256Field(db_default=0, default=0)),
                ("nonce_problem", models.TextField(blank=True, db_default="", default="")),
                ("receipt_problem", models.TextField(blank=True, db_default="", default="")),
                ("signing_problem", queries.waits.WaitField(blank=True, null=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("chain_id", "address"), name="one_signer_per_account")],
            },
        ),
        migrations.CreateModel(
            name="SlotProof",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slot", models.CharField(max_length=66)),
                ("nodes", models.JSONField()),
                ("value", queries.columns.Uint256Field()),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="slot_proofs",
                        to="proving.accountproof",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Stop",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("chain_id", models.PositiveBigIntegerField()),
                ("source_chain_id", models.PositiveBigIntegerField(default=0)),
                ("signer", models.CharField(blank=True, max_length=42)),
                (
                    "code",
                    models.CharField(
                        choices=[
                            ("operator", ""),
                            ("not_believed", "Nodes say again and again what can't be true of its transactions."),
                        ],
                        default="operator",
                        max_length=20,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("by", models.CharField(max_length=60)),
                ("since", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "source_chain_id", "signer"), name="one_stop_of_each")
                ],
            },
        ),
        migrations.CreateModel(
            name="Transaction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("nonce", models.PositiveBigIntegerField()),
                ("to", models.CharField(blank=True, max_length=42)),
                ("data", models.BinaryField()),
                ("gas_limit", models.PositiveBigIntegerField()),
                ("data_fee", queries.columns.Uint256Field(default=0)),
                ("expected_data_fee", queries.columns.Uint256Field(default=0)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("MINED", "Mined"),
                            ("CONFIRMED", "Confirmed"),
                            ("FINAL", "Final"),
                            ("DISPLACED", "Displaced"),
                        ],
                        default="PENDING",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("spent_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ("error", queries.waits.WaitField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True)),
                ("pruned_at", models.DateTimeField(null=True)),
                ("hash", models.CharField(blank=True, max_length=66)),
                ("block_number", models.PositiveBigIntegerField(null=True)),
                ("block_hash", models.CharField(blank=True, max_length=66)),
                ("succeeded", models.BooleanField(null=True)),
                ("gas_used", models.PositiveBigIntegerField(default=0)),
                ("expected_gas", models.PositiveBigIntegerField(db_default=0, default=0)),
                ("gas_price", queries.columns.Uint256Field(default=0)),
                ("reserved_gwei", models.BigIntegerField(default=0)),
                ("accumulates", models.ManyToManyField(related_name="accumulating_transactions", to="queries.block")),
                ("continued", models.ManyToManyField(related_name="continued_by", to="queries.query")),
                (
                    "extends",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="extending_transactions",
                        to="proving.factsregistry",
                    ),
                ),
                ("queries", models.ManyToManyField(related_name="transactions", to="queries.query")),
                (
                    "signer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="transactions", to="proving.signer"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SignedTransaction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.CharField(max_length=66, null=True, unique=True)),
                ("raw", models.BinaryField()),
                ("max_fee_per_gas", queries.columns.Uint256Field()),
                ("max_priority_fee_per_gas", queries.columns.Uint256Field()),
                ("gas_limit", models.PositiveBigIntegerField(null=True)),
                ("is_cancellation", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("broadcast_at", models.DateTimeField(null=True)),
                (
                    "transaction",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="proving.transaction"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Share",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gas", models.PositiveBigIntegerField()),
                ("wei", queries.columns.Uint256Field()),
                ("reserved_gwei", models.BigIntegerField(db_default=0, default=0)),
                ("weight", models.PositiveBigIntegerField()),
                (
                    "batch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="shares", to="queries.batch"
                    ),
                ),
                (
                    "transaction",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="shares", to="proving.transaction"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="accountproof",
            constraint=models.UniqueConstraint(fields=("block", "address"), name="one_proof_per_account"),
        ),
        migrations.AddConstraint(
            model_name="blocktrie",
            constraint=models.UniqueConstraint(fields=("block", "root"), name="one_trie_of_each_root"),
        ),
        migrations.AddConstraint(
            model_name="proventransaction",
            constraint=models.UniqueConstraint(fields=("block", "index"), name="one_row_per_transaction"),
        ),
        migrations.AddConstraint(
            model_name="slotproof",
            constraint=models.UniqueConstraint(fields=("account", "slot"), name="one_proof_per_slot"),
        ),
        migrations.AddIndex(
            model_name="transaction",
            index=models.Index(fields=["signer", "state"], name="proving_tra_signer__8b8333_idx"),
        ),
        migrations.AddIndex(
            model_name="transaction",
            index=models.Index(fields=["signer", "spent_at", "reserved_gwei"], name="what_counts_in_a_day"),
        ),
        migrations.AddIndex(
            model_name="transaction",
            index=models.Index(
                condition=models.Q(("pruned_at__isnull", True)), fields=["spent_at"], name="with_calldata"
            ),
        ),
        migrations.AddConstraint(
            model_name="transaction",
            constraint=models.UniqueConstraint(fields=("signer", "nonce"), name="one_transaction_per_nonce"),
        ),
        migrations.AddConstraint(
            model_name="share",
            constraint=models.UniqueConstraint(fields=("transaction", "batch"), name="one_share_per_batch"),
        ),
    ]
