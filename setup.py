"""Puts into the wheel what stands beside the packages in a checkout: templates and documentation."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
# Where `mcphub.settings` looks for them in an installation without a checkout.
INSTALLED = Path("mcphub", "installed")


class BuildWithFiles(build_py):
    """An editable installation has the checkout itself."""

    def run(self) -> None:
        """Build the packages, and copy the files beside them."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / INSTALLED
        shutil.rmtree(target, ignore_errors=True)
        for name in ("templates", "docs"):
            shutil.copytree(ROOT / name, target / name)
        shutil.copy(ROOT / "README.md", target)


setup(cmdclass={"build_py": BuildWithFiles})
