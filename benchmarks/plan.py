"""How a run is made: its length, the processor cores, the servers it may use and its work directory."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hub import PROJECT, Hub

# What outlives a run, where git does not look: results, and the environments of other servers.
BUILD_FOLDER = PROJECT / "build" / "benchmarks"
RESULTS = BUILD_FOLDER / "results.json"
DATABASE_URL = "postgres://postgres@127.0.0.1:5432/postgres"
REDIS_URL = "redis://127.0.0.1:6379/0"


@dataclass(frozen=True)
class Cores:
    """Where servers run and where load comes from, as taskset writes it."""

    server: str
    load: str

    @property
    def both(self) -> str:
        """For servers, databases and load that share all there is."""
        return f"{self.server},{self.load}"


@dataclass(frozen=True)
class Plan:
    """What every measurement is told. `hub` is the one that others are copied from.

    `short` is a run that only shows that everything works.
    """

    rounds: int
    seconds: int
    short: bool
    folder: Path
    hub: Hub
    cores: Cores
    database_url: str
    redis_url: str

    def new_folder(self) -> Path:
        """An empty directory that goes when the run ends."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def new_hub(self) -> Hub:
        """A hub on SQLite of its own."""
        return self.hub.copy(self.new_folder() / "data")


def cores(*, short: bool) -> Cores:
    """The first two cores that this process may use. Raises SystemExit where there is only one, but for a short run."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others and not short:
        raise SystemExit("The benchmarks need two processor cores: one for the server, one for the load.")
    return Cores(str(first), str(others[0] if others else first))


def check_tools() -> None:
    """Raise SystemExit if a program is missing that every run needs."""
    missing = [name for name in ("wrk", "taskset") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"Missing: {', '.join(missing)}. On Debian: apt-get install wrk util-linux")
