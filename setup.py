"""
What pyproject.toml cannot say: where the plugin and the templates go.

The pages' templates lie beside the package, for whoever edits them. A built
distribution carries them inside the package, as ``tinymq/templates``; an
editable install and a plain checkout read them where they lie.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithTemplates(build_py):
    """Copy the top-level templates/ into the built package."""

    def run(self) -> None:
        """Build, then add the templates."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "tinymq", "templates")
            copytree("templates", target, dirs_exist_ok=True)


setup(
    packages=[*find_packages(include=["tinymq", "tinymq.*"]), "twisted.plugins"],
    cmdclass={"build_py": BuildWithTemplates},
)
