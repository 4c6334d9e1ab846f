"""
The domain: partitions, producers and readers, without sockets or a reactor.

Time comes in through a scheduler and a wall clock, the disk through the
storage room; answers go out through plain callbacks.
"""
