"""Layers of networks: attention, products, recurrence and training."""
