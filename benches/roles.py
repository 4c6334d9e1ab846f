"""
A client process: `python -m benches.roles TASK`, with the task as JSON.

It says "ready", waits for a line, does its work, and prints its figures as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from benches.tasks import Gate, Role, Task


def main() -> None:
    """Do the work of the task on the command line."""
    task = Task.from_json(sys.argv[1])
    role: Role = getattr(import_module(f"benches.{task.client}"), task.role)
    sys.stdout.write(json.dumps(role(task, Gate())) + "\n")
    sys.stdout.flush()
    os._exit(0)  # taking down a big heap is nobody's benchmark


if __name__ == "__main__":
    main()
