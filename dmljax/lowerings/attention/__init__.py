"""Attention, in one kernel or by its formula, and the buffers of keys and values."""
