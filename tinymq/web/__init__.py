"""
The dashboard and its JSON API: Klein, Jinja2, and no JavaScript needed.

Importing Klein installs the global reactor, so import this package late.
"""
