"""Runs graphs: what is known, what is compiled, and each node in turn."""
