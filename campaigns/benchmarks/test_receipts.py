"""Time and memory of facts about a block of 1,500 transactions, from `campaigns.benchmarks.receipts`."""

from campaigns.benchmarks.receipts import LargeBlock, measured


def test_a_large_block(capsys):
    block = LargeBlock(1_500)
    with capsys.disabled():
        print(f"\n{len(block.hashes):,} transactions, {block.bytes / 2**20:.1f} MiB of JSON")
        for count in (1, 100):
            for measure in measured(block, count):
                print(measure)
