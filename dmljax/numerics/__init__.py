"""What operators compute with: floats and their bits, exact sums, special functions. Knows nothing of operators."""
