"""Backends: two numpy oracles and the JAX emitters. Only ``jax_*`` modules import jax."""
