"""Operators along axes: reductions, normalizations, scans and selection."""
