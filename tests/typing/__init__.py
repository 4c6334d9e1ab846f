"""Code that need not run: it is right when mypy takes it."""
