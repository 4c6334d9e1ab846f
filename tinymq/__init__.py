"""
tinymq: a durable message broker on Twisted.

A topic is a partitioned log on disk that can be read again and again.
"""

from __future__ import annotations

__version__ = "0.1.0"
