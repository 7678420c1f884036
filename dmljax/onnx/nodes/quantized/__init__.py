"""Handlers of quantized values and weights."""
