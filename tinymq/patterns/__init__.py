"""
Recipes that put tinymq together with something else, each tested against the real thing.

::

    redis_delay.RedisDelay           puts messages into sorted sets on Redis, until they are due
    redis_worker.RedisDelayWorker    hands those that are due over into topics

Each needs a package of its own: ``pip install 'tinymq[redis]'``.
"""

from __future__ import annotations
