"""Handlers that compute elementwise, and of products, reductions and normalizations."""
