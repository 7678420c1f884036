"""What every other room needs: checks of arguments, files, sizes that are open, scalars with a type."""
