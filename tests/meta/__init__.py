"""The MetaServer."""
