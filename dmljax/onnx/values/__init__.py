"""Values whose sizes are open or depend on other values."""
