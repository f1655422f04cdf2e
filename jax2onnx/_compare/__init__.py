"""Comparison of JAX with a runtime: what ran, what differs, and where."""
