# /// script
# dependencies = ["python-dateutil==4.0.0", "pytz==2026.6", "tzdata==2026.6", "babel==2.19.0"]
# ///
# Time zones from four sources, and dates as several languages write them.
import datetime
import os
import time
import zoneinfo

import pytz
from babel.dates import format_datetime, get_timezone_name
from babel.numbers import format_currency
from dateutil import parser, relativedelta, rrule, tz


def work() -> None:
    noon = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
    for zone in (
        zoneinfo.ZoneInfo("America/New_York"),
        pytz.timezone("America/New_York"),
        tz.gettz("America/New_York"),
    ):
        assert noon.astimezone(zone).hour == 8, zone
    assert len(zoneinfo.available_timezones()) > 400
    assert parser.parse("3 July 2026 10:00 PM EST", tzinfos={"EST": -18000}).hour == 22
    assert datetime.date(2024, 1, 31) + relativedelta.relativedelta(months=1) == datetime.date(
        2024, 2, 29
    )
    rule = rrule.rrule(
        rrule.MONTHLY, count=3, byweekday=rrule.FR(-1), dtstart=datetime.datetime(2026, 1, 1)
    )
    assert [each.day for each in rule] == [30, 27, 27]
    assert format_datetime(noon, "EEEE d. MMMM", locale="de") == "Mittwoch 1. Juli"
    assert format_currency(1234.5, "EUR", locale="fr") == "1\u202f234,50\xa0€"
    assert get_timezone_name("Europe/Berlin", locale="en") == "Central European Time"
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    try:
        assert time.localtime(0).tm_hour == 9 and time.tzname[0] == "JST", time.tzname
        assert datetime.datetime.fromtimestamp(0).hour == 9
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
