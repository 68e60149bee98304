"""Interrupts an embedded engine at any moment, and checks that no acknowledged write is lost."""
