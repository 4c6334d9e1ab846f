"""
Consumer groups on the brokers that lead the partitions that they read.

    positions    how far each group is in one partition: a part of its ledger
    committing   COMMIT and COMMITTED, over all partitions of this broker
    figures      how far each is behind, and how fast that changes
    coordinating MEMBER: the groups whose members this broker looks after
    moving       seeks, resets and what takes them back
"""
