"""Tests of the wire: bytes only."""
