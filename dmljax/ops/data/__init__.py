"""Operators that make, move, gather and scatter elements."""
