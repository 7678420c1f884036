"""Calls of dmljax's functions, and a few operations of JAX between them, as nodes of a DirectML graph."""
