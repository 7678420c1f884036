"""What sessions do with a model besides running it: its types, and what is wrong with them."""
