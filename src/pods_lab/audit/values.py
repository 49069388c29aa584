"""Turn the cells of other trainers' logs into numbers: "10/100", "5:13:22", "1h 2m 3s", "1,234.5".

A cell that cannot be read is NaN, so the caller can name it. Nothing is guessed from other cells.
"""

import math
import re
from datetime import UTC, datetime

NAN = math.nan
LARGEST_STEP = 2.0**53  # above it a float no longer counts by ones

THOUSANDS = {  # by the decimal mark: digits in groups of three
    ".": re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?"),
    ",": re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?"),
}
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(e[-+]?\d+)?", re.IGNORECASE)
WRAPPED = re.compile(r"(?:np\.\w+|tensor|array)\(([^(),]+)[^()]*\)")  # a number as numpy prints it
BLANKS_BETWEEN_DIGITS = re.compile(r"(?<=\d)[ \u00a0\u202f'](?=\d{3}(?!\d))")

FRACTION = re.compile(r"\s*(\d[\d,. ]*)\s*(?:/|of)\s*\d[\d,. ]*\s*")
CLOCK = re.compile(
    r"(?:(?P<days>\d+)\s*d(?:ays?)?,?\s+)?"
    r"(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d{1,2}(?:[.,]\d+)?)"
)
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)[\s,]*")
SECONDS = {
    86400.0: ("d", "day", "days"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    1e-3: ("ms", "msec"),
}
UNITS = {unit: seconds for seconds, units in SECONDS.items() for unit in units}
"""Seconds of each unit of time."""


def number(cell: object, decimal: str = ".") -> float:
    """Return a cell as a float; a text with a percent sign is a share.

    `decimal` is the mark that the file uses. A mark that can only mean one thing is read as that:
    "0,25" is a quarter everywhere, while "1,234" is 1234 unless `decimal` is a comma.

    >>> [number(cell) for cell in (7, "1e-3", "1,234.5", "0,25", "45 %", "np.float64(0.5)")]
    [7.0, 0.001, 1234.5, 0.25, 0.45, 0.5]
    >>> number("1.234,5", decimal=","), number(10**400), number("high"), number(None)
    (1234.5, nan, nan, nan)
    """
    if isinstance(cell, str):
        return _from_text(cell.strip(), decimal)
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # an integer of 400 digits is no float
        return NAN


def _from_text(text: str, decimal: str) -> float:
    if text.endswith("%"):
        return _from_text(text[:-1].rstrip(), decimal) / 100
    wrapped = WRAPPED.fullmatch(text)
    if wrapped:
        text = wrapped[1].strip()

    text = _without_thousands(BLANKS_BETWEEN_DIGITS.sub("", text), decimal)
    if "," in text and not DECIMAL_COMMA.fullmatch(text):
        return NAN
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return NAN


def _without_thousands(text: str, decimal: str) -> str:
    """Write a number that has marks of thousands without them, and with a decimal point."""
    thousands = "," if decimal == "." else "."
    if THOUSANDS[decimal].fullmatch(text):
        return text.replace(thousands, "").replace(",", ".")
    is_certain = thousands in text or text.count(decimal) > 1
    if is_certain and THOUSANDS[thousands].fullmatch(text):
        return text.replace(decimal, "").replace(",", ".")
    return text


def step(cell: object) -> float:
    """Return a training step; of a step "10/100", as a progress bar shows it, the first number.

    >>> step(10), step("10/100"), step("1,000 of 2,000"), step("10.0"), step(10**400), step(1e308)
    (10.0, 10.0, 1000.0, 10.0, nan, nan)
    """
    if isinstance(cell, str):
        fraction = FRACTION.fullmatch(cell)
        cell = fraction[1] if fraction else cell
    value = number(cell)
    return value if abs(value) <= LARGEST_STEP else NAN


def seconds(cell: object) -> float:
    """Return a duration or a time of day in seconds, the latter since 1970; without a zone in UTC.

    >>> [seconds(cell) for cell in ("5:13:22", "01:40", "1 day, 0:00:01", "1h 2m 3s", "1.5 min")]
    [18802.0, 100.0, 86401.0, 3723.0, 90.0]
    >>> seconds(30), seconds("30.5"), seconds("1970-01-02T00:00:10Z"), seconds("soon")
    (30.0, 30.5, 86410.0, nan)
    """
    if not isinstance(cell, str):
        return number(cell)
    text = cell.strip()
    value = number(text)
    if not math.isnan(value):
        return value
    clock = CLOCK.fullmatch(text)
    if clock:
        days = float(clock["days"] or 0)
        hours = float(clock["hours"] or 0)
        minutes = float(clock["minutes"])
        return days * 86400 + hours * 3600 + minutes * 60 + number(clock["seconds"])
    value = _with_units(text.lower())
    return _since_1970(text) if math.isnan(value) else value


def _with_units(text: str) -> float:
    """Return the seconds of a text such as "1h 2m 3s"; NaN: it is none."""
    amounts = AMOUNT.findall(text)
    if not amounts or AMOUNT.sub("", text):
        return NAN
    total = 0.0
    for amount, unit in amounts:
        if unit not in UNITS:
            return NAN
        total += float(amount) * UNITS[unit]
    return total


def _since_1970(text: str) -> float:
    """Return the time of an ISO date and hour; NaN: it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return NAN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
