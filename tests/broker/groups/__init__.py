"""Consumer groups on the brokers that lead the partitions that they read."""
