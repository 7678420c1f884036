"""Converts calls of dmljax's functions, and a few JAX operations between them, to nodes of a DirectML graph."""
