"""The door to the core: arguments in, JAX's tracing, results out."""
