"""
The proof that acknowledged means kept: `tinymq verify-crash`.

A real broker is loaded, killed at random moments, started again on the same data
(or on what a power cut would have left of it), and every partition is read and
compared with what was acknowledged. `Checker` is the judge, `Journal` the
witness, `Load` the traffic, `BrokerProcess` the accused, and `Trial` the
sequence of events.
"""
