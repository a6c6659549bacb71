"""Times on the pages of the admin."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from tools_app.web.admin.times import full_text, moment, relative_text

NOW = datetime(2026, 7, 1, 12, 0, 0, 250_000, UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.5, "just now"),
        (0.5, "just now"),
        (-12, "12 s ago"),
        (-59.9, "59 s ago"),
        (-60, "1 min ago"),
        (-7200, "2 h ago"),
        (-86_400 * 29, "29 d ago"),
        (86_400 * 3, "in 3 d"),
        (-86_400 * 30, "2026-06-01"),
        (86_400 * 31, "2026-08-01"),
    ],
)
def test_a_time_is_told_by_its_distance_and_a_distant_one_by_its_date(seconds: float, text: str) -> None:
    assert relative_text(NOW + timedelta(seconds=seconds), NOW) == text


def test_the_full_time_is_to_the_millisecond_in_the_zone_of_the_viewer() -> None:
    with timezone.override("Europe/Berlin"):
        assert full_text(NOW) == "2026-07-01 14:00:00.250 CEST"


def test_a_cell_has_the_full_time_on_hover() -> None:
    assert moment(None) == "-"
    assert f'title="{full_text(NOW)}"' in moment(NOW)
