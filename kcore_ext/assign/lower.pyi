"""Conversion from value objects to arrays and back. Only compiled code uses this module."""
