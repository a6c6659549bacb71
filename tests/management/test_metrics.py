"""`manage.py metrics`: the numbers of a host without a web process."""

from tools_app.telemetry.snapshots import Publisher
from tools_app.telemetry.tallies import Tallies


def test_it_prints_what_the_processes_of_this_host_counted(manage, environment, tmp_path):
    tallies = Tallies()
    tallies.add("mcphub_denials_total", 3, ("401",))
    Publisher(tmp_path / "data" / "metrics", tallies).publish()

    done = manage("metrics")

    assert done.returncode == 0, done.stderr
    assert 'mcphub_denials_total{status="401"} 3.0\n' in done.stdout
