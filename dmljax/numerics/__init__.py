"""The arithmetic that operators are built from.

It covers floats compared by their bits, sums with their rounding errors, special functions, reductions along several
axes, compaction of predicates, sharding on explicit meshes, and symbolic sizes. Nothing here knows about operators.
"""
