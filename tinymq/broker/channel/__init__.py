"""
The work queue: named durable subscriptions whose messages are settled one by one.

Nothing here does I/O, knows Twisted or looks at a clock: times are arguments in
milliseconds, what must be durable is handed out as records for a ledger, and
what is to be done elsewhere, such as dead letters, is handed out as values.
"""
