"""Exports of event logs and their manifests."""
