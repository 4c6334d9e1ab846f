"""
How the processes of one cluster know each other.

`keeping` is the clockwork of a MetaServer, `remote` a broker's view of a
MetaServer elsewhere, `nodes` the way to ask one broker, `announcer` how an
independent broker tells lookup servers about itself.
"""
