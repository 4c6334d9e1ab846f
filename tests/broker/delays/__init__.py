"""Tests of messages that are not due yet."""
