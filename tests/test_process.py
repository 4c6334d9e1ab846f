"""The process's own settings."""

from __future__ import annotations

import gc

from tinymq.process import tune


def test_tune_keeps_collecting() -> None:
    """The collector still runs, only less often, and cycles still go."""
    before = gc.get_threshold()
    try:
        tune()
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before[0]

        class Node:
            def __init__(self) -> None:
                self.me = self

        made = Node()
        del made
        assert gc.collect() > 0
    finally:
        gc.set_threshold(*before)
