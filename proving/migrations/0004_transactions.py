import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("proving", "0003_reader"),
        ("queries", "0003_transactions"),
    ]

    operations = [
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
            options={
                "constraints": [models.UniqueConstraint(fields=("block", "root"), name="one_trie_of_each_root")],
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
            options={
                "constraints": [models.UniqueConstraint(fields=("block", "index"), name="one_row_per_transaction")],
            },
        ),
    ]
