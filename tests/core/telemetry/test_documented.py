"""The documentation of metrics: complete and correct."""

import re
from pathlib import Path

from tools_app.core.telemetry.registry import METRICS, Kind

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "observability.md").read_text()
ROWS = re.findall(r"^\| `(mcphub_\w+)` \| ([^|]+) \|([^|]*)\|$", PAGE, re.MULTILINE)
WORDS = {Kind.COUNTER: "counter", Kind.HISTOGRAM: "histogram", Kind.HUB: "gauge of the hub"}


def test_the_table_has_every_metric_and_no_other():
    assert sorted(name for name, _, _ in ROWS) == sorted(METRICS)


def test_the_table_says_what_kind_each_is_and_which_labels_it_has():
    documented = {name: (kind, re.findall(r"`([a-z]+)`", labels)) for name, kind, labels in ROWS}

    for name, metric in METRICS.items():
        kind, labels = documented[name]
        assert kind.startswith(WORDS.get(metric.kind, "gauge")), name
        assert set(metric.labels) <= set(labels), name


def test_alerts_ask_for_metrics_that_exist():
    queried = set(re.findall(r"mcphub_\w+", PAGE.split("### Alerts")[1].split("## Traces")[0]))

    assert {re.sub("_bucket$", "", name) for name in queried} <= set(METRICS)
