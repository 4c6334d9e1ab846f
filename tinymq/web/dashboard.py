"""The dashboard: every page, on one Klein app."""

from __future__ import annotations

from tinymq.web.actions import Actions
from tinymq.web.pages import Pages


class Dashboard(Pages, Actions):
    """All pages. Its `app` finds the method that an address belongs to."""
