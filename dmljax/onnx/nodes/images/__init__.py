"""Handlers of images: windows, resampling and boxes."""
