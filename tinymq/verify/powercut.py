"""
What a power cut leaves of a data folder.

The logs are made anew from the recording of all writes and syncs, without some
of what was not synced. The MetaServer's store is SQLite's own matter: it is
taken as it lies on the disk, so what is tried there is a killed process, not a
lost page.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

from tinymq.storage.powerloss import replay

#: The store and what SQLite keeps beside it.
_STORE: Final = "meta.sqlite*"


def cut_power(data: Path, record: Path, target: Path, chance: random.Random) -> None:
    """
    Make the folder that a power cut would have left.

    Args:
        data: The data folder as the dead broker left it.
        record: What it wrote and synced.
        target: Where to make the folder; must not exist.
        chance: Decides what is lost.
    """
    replay(str(record), str(target), chance)
    for file in data.glob(_STORE):
        shutil.copy2(file, target / file.name)
