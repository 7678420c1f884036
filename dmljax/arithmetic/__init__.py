"""Numbers: floats by their bits, conversions, elementary functions.

Nothing here knows about sizes, platforms or arguments.
"""
