"""A kit that asks DirectML itself: `write_kit` writes what DxDispatch runs on Windows; `compare` reads its results."""
