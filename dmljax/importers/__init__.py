"""Readers of the formats in which DirectML programs are kept."""
