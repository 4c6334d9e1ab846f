"""What a partition remembers of message ids, so that a message sent twice is stored once."""
