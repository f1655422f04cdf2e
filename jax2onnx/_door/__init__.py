"""The Python front end of the core: arguments, JAX's tracing, results."""
