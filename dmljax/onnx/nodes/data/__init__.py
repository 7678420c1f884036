"""Handlers that make, move and find elements."""
