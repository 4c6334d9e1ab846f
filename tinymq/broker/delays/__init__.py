"""
Messages that are not due yet: kept safe, found again, and appended when it is time.

`wheel` knows no messages, only times; `acts` is what is written down; `index` is the
view on the disk; `delays` is the state of one partition; `delaying` is all of them.
"""
