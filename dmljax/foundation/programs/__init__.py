"""Compiled programs: how they are made and kept, and how far long work is."""
