"""The operators, a module per family."""
