"""Handlers of attention, its caches and its states."""
