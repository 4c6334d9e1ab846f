"""``twistd tinymq``. No code here: twistd imports this file for every plugin list."""

from __future__ import annotations

from twisted.application.service import ServiceMaker

tinymq = ServiceMaker(
    "tinymq",
    "tinymq.tap",
    "A durable message broker with a dashboard.",
    "tinymq",
)
