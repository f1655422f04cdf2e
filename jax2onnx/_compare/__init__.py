"""JAX against a runtime: what ran, what differs, and where."""
