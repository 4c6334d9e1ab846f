"""
Consumer groups on the brokers that lead the partitions that they read.

    positions    how far each group is in one partition: a part of its ledger
    committing   COMMIT and COMMITTED, over all partitions of this broker
    moving       seeks, resets and what takes them back
"""
