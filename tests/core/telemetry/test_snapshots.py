"""Metrics of several processes of a host: they are summed, and counts of ended processes are kept."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from tests.forks import exit_code_of_child
from tools_app.core.telemetry import snapshots
from tools_app.core.telemetry.exposition import exposed
from tools_app.core.telemetry.registry import METRICS, MetricRegistry, metrics_registry
from tools_app.core.telemetry.snapshots import Publisher, current_snapshots

CALLS = "mcphub_calls_total"
OK = ("tools/call", "ok", "2026-07-28", "inline")
OK_LABELS = '{method="tools/call",mode="inline",outcome="ok",revision="2026-07-28"}'


@pytest.fixture
def process(tmp_path):
    """Write the metrics of a process in a shared directory: `process(calls=3, running=1)`."""

    def make(calls, running=0):
        metrics_registry = MetricRegistry()
        metrics_registry.add(CALLS, calls, OK)
        metrics_registry.observe("mcphub_recorder_commit_seconds", [0.002] * calls)
        metrics_registry.gauge("mcphub_running_calls", lambda: running)
        publisher = Publisher(tmp_path, metrics_registry)
        publisher.publish()
        return metrics_registry, publisher

    return make


def lines(directory):
    return exposed(current_snapshots(directory)).decode().splitlines()


def grow_old(publisher, seconds):
    then = time.time() - seconds
    os.utime(publisher.path, (then, then))


def test_counters_histograms_and_gauges_of_all_processes_are_added_up(process, tmp_path):
    process(3, running=1)
    process(4, running=2)

    exposition = lines(tmp_path)

    assert f"{CALLS}{OK_LABELS} 7.0" in exposition
    assert "mcphub_recorder_commit_seconds_count 7.0" in exposition
    assert 'mcphub_recorder_commit_seconds_bucket{le="0.001"} 0.0' in exposition
    assert 'mcphub_recorder_commit_seconds_bucket{le="0.0025"} 7.0' in exposition
    assert "mcphub_running_calls 3.0" in exposition


def test_a_silent_process_has_no_gauges_but_what_it_counted_stays(process, tmp_path):
    _, publisher = process(3, running=5)
    process(4, running=2)
    grow_old(publisher, snapshots.SILENT_SECONDS + 1)

    assert "mcphub_running_calls 2.0" in lines(tmp_path)
    assert f"{CALLS}{OK_LABELS} 7.0" in lines(tmp_path)


def test_what_a_dead_process_counted_is_kept_without_its_file(process, tmp_path):
    _, publisher = process(3)
    process(4)
    grow_old(publisher, snapshots.DEAD_SECONDS + 1)

    assert f"{CALLS}{OK_LABELS} 7.0" in lines(tmp_path)
    assert not publisher.path.exists()
    assert f"{CALLS}{OK_LABELS} 7.0" in lines(tmp_path)


def test_processes_that_end_at_once_lose_no_counts(process, tmp_path, monkeypatch):
    (_, first), (_, second) = process(3), process(4)
    read, ends = snapshots._read, []

    def read_slowly(path):
        """Return what was read once the other process has ended, or waits for this one."""
        snapshot = read(path)
        if path.name == snapshots.DEAD_PROCESSES and not ends:
            ends.append(pool.submit(second.withdraw))
            wait(ends, timeout=0.3)
        return snapshot

    monkeypatch.setattr(snapshots, "_read", read_slowly)
    with ThreadPoolExecutor(1) as pool:
        first.withdraw()
        ends[0].result()

    assert f"{CALLS}{OK_LABELS} 7.0" in lines(tmp_path)


def test_a_process_that_was_taken_for_dead_counts_nothing_twice(process, tmp_path):
    metrics_registry, publisher = process(3)
    grow_old(publisher, snapshots.DEAD_SECONDS + 1)
    lines(tmp_path)
    publisher.publish()
    metrics_registry.add(CALLS, 2, OK)
    publisher.publish()

    assert f"{CALLS}{OK_LABELS} 5.0" in lines(tmp_path)


def test_a_process_that_ends_leaves_its_counts_at_once(process, tmp_path):
    metrics_registry, publisher = process(3)
    metrics_registry.add(CALLS, 1, OK)
    publisher.withdraw()

    assert f"{CALLS}{OK_LABELS} 4.0" in lines(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [snapshots.DEAD_PROCESSES]


def test_a_file_that_is_not_whole_is_passed_over(process, tmp_path):
    process(3)
    (tmp_path / "1-broken.json").write_bytes(b'{"counts": [')

    assert f"{CALLS}{OK_LABELS} 3.0" in lines(tmp_path)


def test_an_id_is_told_as_its_name():
    metrics_registry = MetricRegistry()
    metrics_registry.add("mcphub_tenant_calls_total", 2, ("0192", "ok"))

    exposition = exposed([metrics_registry.snapshot()], {"tenant": {"0192": "acme"}}).decode()

    assert 'mcphub_tenant_calls_total{outcome="ok",tenant="acme"} 2.0' in exposition


def test_every_metric_has_a_name_that_prometheus_takes():
    exposition = exposed([MetricRegistry().snapshot()]).decode()

    assert all(name.startswith("mcphub_") for name in METRICS)
    assert f"# TYPE {CALLS} counter" not in exposition, "a metric with labels and no values is left out"
    assert "# TYPE mcphub_recorder_failed_records_total counter\nmcphub_recorder_failed_records_total 0.0" in exposition


def test_a_forked_child_does_not_wait_for_a_thread_that_was_counting():
    counting, counted = threading.Event(), threading.Event()

    def seconds():
        counting.set()
        assert counted.wait(30)
        yield 0.5

    thread = threading.Thread(target=metrics_registry.observe, args=("mcphub_call_queue_seconds", seconds()))
    thread.start()
    assert counting.wait(30)

    def count():
        metrics_registry.add("mcphub_recorder_failed_records_total")
        return True

    code = exit_code_of_child(count)
    counted.set()
    thread.join()

    assert code == 0
