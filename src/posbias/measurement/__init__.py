"""Measurements of a model: schema, store, merge and tables (no torch)."""
