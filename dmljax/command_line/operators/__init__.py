"""The commands about operators: `dmljax ops`, `explain` and `conformance`."""
