"""Compiled modules of the transaction coordinator: transactions, their records and their ends."""
