"""
Storage: segments, logs, recovery, syncing and the data folder.

Files only: no Twisted, no clock (times are arguments, in milliseconds since the
epoch), and threads only in `tinymq.storage.sync`. The format on disk is in
docs/storage.md.
"""
