"""What operations take and tell of settings, whatever they belong to."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.shapes import said, several
from tinymq.operation import Parameter
from tinymq.wire.fields import mapping, narrowed

#: Rows of what was changed.
CHANGES: Final = said(
    several({"type": "array", "minItems": 3, "maxItems": 3}),
    "Rows of setting, old and new value.",
)


def settings(example: str, *kinds: str) -> tuple[Parameter, Parameter]:
    """
    Make the parameters that hold settings.

    Args:
        example: One of the settings.
        *kinds: JSON types of their values; all of them may be null as well.

    Returns:
        That of what is made, and that of what is changed.
    """
    check = narrowed(mapping, additionalProperties={"type": [*kinds, "null"]})
    return (
        Parameter(
            "config",
            check,
            default={},
            text=f"Settings by their dotted names, such as {example}; the others have defaults.",
        ),
        Parameter(
            "config",
            check,
            default={},
            text="Settings to change, by their dotted names; null returns one to its default.",
        ),
    )
