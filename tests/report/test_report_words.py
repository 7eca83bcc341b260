"""The wording of findings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from posbias.comparison import ComparisonRow
from posbias.report.answers import closest_sentence
from posbias.report.wording import (
    bracket,
    headline,
    last_token_sentence,
    number,
    percent,
    shape_sentence,
    times,
    trough_sentence,
)
from posbias.report.zones import ZoneFigures
from posbias.uncertainty import Interval

NBSP = "\N{NO-BREAK SPACE}"


def figures(
    end: Interval | None, start: Interval | None, *, u_shaped: bool = False, alike: float | None = 1
) -> ZoneFigures:
    share = Interval(0.3)
    return ZoneFigures(share, share, share, start, end, 5, 0.4, u_shaped, alike)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.123456, "0.123"),
        (-2.5, "\N{MINUS SIGN}2.5"),
        (1234.4, "1,234"),
        (math.inf, "∞"),
        (1.5e-7, "1.5 \N{MULTIPLICATION SIGN} 10⁻⁷"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_percentages_keep_digits_near_both_ends() -> None:
    assert percent(0.5) == f"50{NBSP}%"
    assert percent(0.99956) == f"99.956{NBSP}%"
    assert percent(1e-9) == f"below 0.0001{NBSP}%"
    assert percent(0.0) == f"0{NBSP}%"
    assert percent(1.0) == f"100{NBSP}%"


def test_ratios_have_two_or_three_digits() -> None:
    assert [times(r) for r in (6.02, 0.3851, 14.6, 123.4, 1.1234)] == [
        "6",
        "0.39",
        "15",
        "123",
        "1.12",
    ]


def test_brackets() -> None:
    assert bracket(Interval(0.5)) == ""
    assert bracket(Interval(0.5, 0.25, 0.75), percent) == f"25 to 75{NBSP}%"


def test_headline_says_more_less_and_alike() -> None:
    (last, extent), (first, no_extent) = headline(figures(Interval(6.02, 5.5, 6.5), Interval(0.4)))
    assert last == (
        f"Per token, this model uses the last 10{NBSP}% of its context 6 times as much as the "
        "middle."
    )
    assert extent == f"95{NBSP}% interval 5.5 to 6.5"
    assert first == f"It uses the first 10{NBSP}% less than the middle: 0.4 times as much."
    assert no_extent == ""


@pytest.mark.parametrize("ratio", [Interval(1.4, 0.9, 2.0), Interval(1.04, 1.02, 1.06)])
def test_headline_does_not_claim_what_the_windows_leave_open(ratio: Interval) -> None:
    (last, extent), _ = headline(figures(ratio, ratio))
    assert f"about as much as the middle ({times(ratio.value)} times)" in last
    assert extent


def test_headline_without_influence_in_the_middle() -> None:
    (last, _), _ = headline(figures(Interval(math.inf), Interval(math.inf)))
    assert last.endswith("of its context and the middle not at all.")


def test_no_headline_without_a_middle() -> None:
    assert headline(figures(None, None)) == []


def test_shape_is_said_with_its_share_of_the_resamples() -> None:
    ratio = Interval(2.0)
    flat = shape_sentence(figures(ratio, ratio, alike=0.25))
    assert "not U-shaped" in flat
    assert f"75{NBSP}% of the resamples" in flat
    bent = shape_sentence(figures(ratio, ratio, u_shaped=True, alike=1.0))
    assert "is U-shaped" in bent
    assert "all of the resamples" in bent
    unknown = shape_sentence(figures(ratio, ratio, alike=None))
    assert "resamples" not in unknown


def said_of(distances: dict[str, float], verdict: str = "") -> str:
    ranked = sorted((_row(name, w1) for name, w1 in distances.items()), key=lambda row: row.w1)
    w1 = {name: Interval(w1, w1 - 0.01, w1 + 0.01) for name, w1 in distances.items()}
    return closest_sentence(ranked, w1, verdict)


def _row(name: str, w1: float) -> ComparisonRow:
    return ComparisonRow(name, w1, 0.0, 0.0, 0.0, 0.1, 0.1, 3, 0.5, 3.0, 1.0, is_u_shaped=False)


def test_the_closest_prediction_is_said_with_the_next_one_and_the_yardstick() -> None:
    distances = {"residual": 0.1, "paper": 0.12, "uniform": 0.3}
    alike = said_of(distances, "not distinguished")
    assert "closest prediction is residual with W1 0.1 (0.09 to 0.11)" in alike
    assert "does not tell it apart from the next one, paper with W1 0.12" in alike
    assert "uniform" in alike
    assert "0.3 away" in alike
    assert "it is closer than the next one, paper" in said_of(distances, "farther")
    assert "closer than" not in said_of(distances)


def test_a_flat_profile_that_is_closest_is_said_to_be_a_failure() -> None:
    flat = said_of({"residual": 0.4, "uniform": 0.3})
    assert "No prediction comes closer than a flat profile, which is 0.3 (0.29 to 0.31)" in flat


def test_the_low_point_is_said_with_its_range_and_the_last_token_with_its_share() -> None:
    known = replace(figures(None, None), trough_range=(2, 7), last_token=0.25)
    assert "around position 5, anywhere from 2 to 7, of 0 to 8" in trough_sentence(known, 9)
    assert f"25{NBSP}% is that of the last token itself" in last_token_sentence(known)[0]
    assert "anywhere" not in trough_sentence(figures(None, None), 9)
    assert last_token_sentence(figures(None, None)) == []
