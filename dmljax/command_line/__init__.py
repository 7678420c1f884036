"""The command `dmljax`."""
