"""A kit that asks DirectML itself: `write_kit` writes what DxDispatch runs on Windows, and `compare` reads its results."""
