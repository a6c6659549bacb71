"""Conversion of metric snapshots into the Prometheus text format."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tools_app.core.telemetry.registry import METRICS, Kind, Metric, Snapshot
from tools_app.core.telemetry.snapshots import summed

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MERGING: dict[Kind, Callable[[list[float]], float]] = {
    Kind.SUM: sum,
    Kind.HUB: max,
    Kind.LARGEST: max,
    Kind.SMALLEST: min,
}


class _Numbers(Collector):
    def __init__(self, snapshots: Iterable[Snapshot], names: Mapping[str, Mapping[str, str]]) -> None:
        self._snapshots = list(snapshots)
        self._names = names

    def collect(self) -> Iterator[Family]:
        """Yield one family for each metric that has a value."""
        whole = summed(self._snapshots)
        counts, spreads = _by_name(whole["counts"]), _by_name(whole["spreads"])
        gauges = _by_name([row for snapshot in self._snapshots for row in snapshot["gauges"]])
        for name, metric in METRICS.items():
            rows = {Kind.COUNTER: counts, Kind.HISTOGRAM: spreads}.get(metric.kind, gauges)[name]
            if rows or not metric.labels:
                yield self._family(name, metric, rows)

    def _family(self, name: str, metric: Metric, rows: list[Any]) -> Family:
        if metric.kind is Kind.COUNTER:
            counter = CounterMetricFamily(name.removesuffix("_total"), metric.help, labels=metric.labels)
            for _, labels, value in rows or [[name, (), 0.0]]:
                counter.add_metric(self._label_values(metric, labels), value)
            return counter
        if metric.kind is Kind.HISTOGRAM:
            return self._histogram(name, metric, rows)
        gauge = GaugeMetricFamily(name, metric.help, labels=metric.labels)
        by_labels: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for _, labels, value in rows:
            by_labels[tuple(labels)].append(value)
        for labels, values in by_labels.items():
            gauge.add_metric(self._label_values(metric, labels), MERGING[metric.kind](values))
        return gauge

    def _histogram(self, name: str, metric: Metric, rows: list[Any]) -> Family:
        family = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        bounds = [*map(str, metric.buckets), "+Inf"]
        for _, labels, buckets, total in rows:
            if len(buckets) == len(bounds):
                below = list(zip(bounds, map(float, accumulate(buckets)), strict=True))
                family.add_metric(self._label_values(metric, labels), below, total)
        return family

    def _label_values(self, metric: Metric, labels: Iterable[str]) -> list[str]:
        """Return label values for display: an id is replaced by its name, if known."""
        values = zip(metric.labels, labels, strict=False)
        return [self._names.get(label, {}).get(value, value) for label, value in values]


def _by_name(rows: Iterable[Any]) -> defaultdict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def exposed(snapshots: Iterable[Snapshot], names: Mapping[str, Mapping[str, str]] | None = None) -> bytes:
    """Return the response to a scrape. `names` map label values to names: `{"tenant": {id: slug}}`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(snapshots, names or {}))
    return generate_latest(registry)
