"""Group consumers without I/O: membership, taking shares over, commits, giving up."""
