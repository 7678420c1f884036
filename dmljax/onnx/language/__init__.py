"""Language models, which continue sequences of tokens."""
