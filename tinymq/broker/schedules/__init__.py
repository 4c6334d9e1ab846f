"""
Recurring messages on the broker that leads their partition.

::

    scheduling.Scheduling   keeps one message of each schedule waiting
    book.Book               what is done and what was meant to be put, durably
    ports.Delays            the waiting messages of a partition, as this needs them
    store.DelayStore        the same, by the delay log
"""

from __future__ import annotations
