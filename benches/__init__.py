"""
The benchmarks: `python -m benches`; docs/benchmarks.md tells what is measured and how.

Server, producer and consumer are processes of their own on 127.0.0.1.
`servers` starts brokers and peers, `rows` and `trials` say what is measured,
`workers` runs clients, whose code is in `roles`, `blocking`, `deferred`,
`redis_roles`, `beanstalkd_roles` and `raw`; `report` sums up.
"""
