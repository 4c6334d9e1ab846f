"""
Exchanges on the brokers that lead their partitions: what is published is copied to its targets.

    tables     which targets a record has, from the MetaServer's exchanges
    judging    tells the publisher which of its records no binding takes
    routes     what is planned and not yet brought: the router's part of the ledger
    planning   reads the log and plans the copies
    copying    makes batches of what is planned
    carrying   brings them to a target, one batch after the other
    router     all of it for one partition
"""
