"""Operators that slide windows over images, sample them or pad them."""
