"""A cluster for each test, with a world outside."""

from __future__ import annotations

from tests.cluster.conftest import make

__all__ = ["make"]
