"""
The client without I/O: bytes, requests and a clock in, bytes and replies out.

Nothing here imports Twisted, opens a socket or reads a clock. Both faces, the
Deferred one (`tinymq.client`) and the blocking one (`tinymq.sync`), are thin
shells around `Cluster`, `ProducerCore` and `ConsumerCore`.
"""
