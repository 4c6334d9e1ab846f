"""
tinymq: a durable message broker on Twisted.

One topic is a replayable partitioned log and a work queue at the same time.
"""

from __future__ import annotations

__version__ = "0.1.0"
