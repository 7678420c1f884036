"""Graphs of operators: made, drawn, read from serialized graphs, and recorded from JAX programs."""
