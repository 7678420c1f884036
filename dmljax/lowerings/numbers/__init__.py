"""Numbers: floats by their bits, conversions, special functions, and products."""
