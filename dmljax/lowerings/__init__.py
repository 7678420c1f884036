"""Ways to compute, by platform, where the formula by itself is slow or breaks a rule. Nothing here knows operators."""
