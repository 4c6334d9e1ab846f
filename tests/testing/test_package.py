"""The package itself."""

from __future__ import annotations

import pytest

import tinymq.testing


def test_names() -> None:
    """Everything that is promised is there, and nothing else."""
    for name in tinymq.testing.__all__:
        assert getattr(tinymq.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = tinymq.testing.nothing
