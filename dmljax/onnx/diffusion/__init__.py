"""Diffusion models, which make images from texts."""
