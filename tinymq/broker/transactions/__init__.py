"""
Transactions: records, positions and settles in many partitions that count together or not at all.

Each partition knows which transactions are open in it (`opened`), the leader of a
partition of an internal topic decides (`coordinator`), and every broker brings what was
decided to its partitions and asks about what nobody decided (`deciding`).
"""
