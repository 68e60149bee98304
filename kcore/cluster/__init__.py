"""Stores that several nodes share: registration, leases, leadership and logs."""
