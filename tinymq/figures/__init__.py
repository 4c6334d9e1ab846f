"""
What the dashboard, metrics and lists show, of all brokers.

`reports` tells what moved at one broker and `vitals` how its process is; `feeds`
bring that to the `board`, from which `sampling` feeds the `history` of rates and
`listing` keeps the rows of topics. Nothing here looks at live partitions but
`reports`.
"""
