"""Restores of committed offsets: target, plan and application."""
