"""
The `tinymq` command.

Everything heavy is imported by the verb that needs it, so that `tinymq --help`
and shell completion answer at once. Nothing here imports Twisted.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave the process with its exit status."""
    from tinymq.cli.app import root  # noqa: PLC0415 - a `--version` needs little

    root.main(args=arguments if arguments is None else list(arguments), prog_name="tinymq")
