"""Transactions as a client sees them: records, positions and settles that count together."""
