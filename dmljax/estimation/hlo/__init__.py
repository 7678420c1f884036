"""Reads compiled HLO modules: their text, and what they cost."""
