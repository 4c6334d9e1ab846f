"""The fixtures of the plugin, which an installation brings in by its entry point."""

from tinymq.testing.plugin import tinymq_broker, tinymq_server

__all__ = ["tinymq_broker", "tinymq_server"]
