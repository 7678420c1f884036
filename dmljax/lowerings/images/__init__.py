"""Windows, regions and layouts of images."""
