"""
Consumer groups: who reads which partition.

All in here is plain computing: no Twisted, no I/O, no clock of its own.
"""
