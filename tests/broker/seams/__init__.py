"""Features that were built apart, together in one life."""
