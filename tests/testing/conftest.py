"""The fixture of the plugin, which an installation brings in by its entry point."""

from tinymq.testing.plugin import tinymq_broker

__all__ = ["tinymq_broker"]
