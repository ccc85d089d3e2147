"""The table of measurements."""

import time

import pytest

from sessions import Store


def test_the_newest_measurements_come_in_order_and_are_thinned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        monkeypatch.setattr(time, "time", lambda at=1e9 - number: at)  # a clock that somebody sets back
        store.measurements.add("speed", "c-222222", {"n": number, "bad": float("inf")})
    others = ("speed", "c-333333", 9), ("memory", "", 7)
    for kind, id, number in others:
        store.measurements.add(kind, id, {"n": number})
    rows = store.measurements.newest("speed", "c-222222", limit=3)
    assert [row.values for row in rows] == [{"n": number, "bad": None} for number in (2, 3, 4)]
    for most, left in ((9, [0, 1, 2, 3, 4]), (3, [0, 2, 4]), (2, [0, 4])):
        store.measurements.thin("speed", "c-222222", most)
        assert [row.values["n"] for row in store.measurements.newest("speed", "c-222222")] == left
        assert [[row.values["n"] for row in store.measurements.newest(kind, id)] for kind, id, _ in others] == [
            [9],
            [7],
        ]
