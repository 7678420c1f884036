"""Numbers: floats by their bits, conversions, elementary functions. No sizes, no platforms, no arguments."""
