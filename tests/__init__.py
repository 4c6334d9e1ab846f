"""The tests mirror the package."""
