"""Handlers of elementwise operators, products, reductions and normalizations."""
