"""Lowerings by platform, where the formula is slow or breaks a rule. Nothing here knows about operators."""
