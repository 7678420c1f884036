"""Checks of arguments, files, open sizes and typed scalars, for every other room."""
