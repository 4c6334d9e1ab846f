"""The files of a data folder that say whose it is."""

from __future__ import annotations

from typing import Final

from tinymq.errors import ConfigError
from tinymq.storage.folder import DataFolder

#: The broker's number.
NUMBER_FILE: Final = "broker.id"
#: The MetaServer's store.
META_FILE: Final = "meta.sqlite"
#: What a broker knows of its MetaServer's registry.
REPLICA_FILE: Final = "replica"


def read_number(folder: DataFolder) -> int | None:
    """
    Return the number of the broker that a data folder belongs to.

    Raises:
        ConfigError: The file holds something else.
    """
    path = f"{folder.path}/{NUMBER_FILE}"
    content = folder.disk.read_file(path)
    if content is None:
        return None
    try:
        return int(bytes(content))
    except ValueError as error:
        raise ConfigError(f"{path} does not hold a broker's number") from error


def write_number(folder: DataFolder, number: int) -> None:
    """Let a data folder belong to a broker from now on."""
    folder.disk.replace_file(f"{folder.path}/{NUMBER_FILE}", b"%d\n" % number)
