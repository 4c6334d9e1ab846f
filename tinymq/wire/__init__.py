"""
The wire: frames, messages and record batches, as bytes in and values out.

Nothing here does I/O or imports Twisted; server and clients share it.
docs/protocol.md is the same thing for people.
"""
