"""
Proving what groups, channels and transactions promise, by the history of a run.

Processes publish, read, work and move records while they, the brokers and the links
between them are struck. Each writes down what it was told, as it is told it; at the end
the logs are read once more, and everything is compared.
"""
