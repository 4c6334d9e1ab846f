"""Snapshots: what a whole says of its parts."""

from __future__ import annotations

from tinymq.stats import PartitionSnapshot, TopicSnapshot


def test_topic_adds_up_its_partitions() -> None:
    """Totals of a topic are those of its partitions; unknown times do not count."""
    parts = (
        PartitionSnapshot(index=0, leader="a", start=5, end=9, bytes=10, oldest_ms=7),
        PartitionSnapshot(index=1, leader="a", start=0, end=2, bytes=1, last_write_ms=8),
    )
    topic = TopicSnapshot(id="0", name="t", created_ms=0, sync="always", partitions=parts)

    assert (topic.messages, topic.bytes, topic.oldest_ms, topic.last_write_ms) == (6, 11, 7, 8)
