"""
Recipes that put tinymq together with something else, each tested against the real thing.

::

    redis_delay.RedisDelay           puts messages into sorted sets on Redis, until they are due
    redis_worker.RedisDelayWorker    hands those that are due over into topics
    outbox.Outbox, outbox.Relay      messages in the transactions of a program's own database
    idempotence                      handlers that know repeats, versions and states

The first two need a package: ``pip install 'tinymq[redis]'``. The others want a DB-API driver
where they use a database.
"""

from __future__ import annotations
