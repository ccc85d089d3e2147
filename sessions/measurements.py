"""Numbers for the live panel: what happened, when, to whom."""

import time
from typing import Any

from sessions.conversations import Conversations
from sessions.rows import MeasurementRow, make_row, to_json


class Measurements(Conversations):
    """What was measured."""

    def add_measurement(self, kind: str, subject_id: str, values: dict[str, Any]) -> MeasurementRow:
        """Keep one record. Records about a context, session, turn or job go when that is deleted."""
        row = {"at": time.time(), "kind": kind, "subject_id": subject_id, "values": to_json(values)}
        with self._write(passing=True) as db:
            db.table("measurements").insert(row)
        return make_row(MeasurementRow, row)

    def measurements(self, kind: str, subject_id: str, limit: int = 1000) -> list[MeasurementRow]:
        """The newest `limit` records of a kind about a subject, oldest first."""
        rows = self._rows(
            "SELECT * FROM measurements WHERE kind = ? AND subject_id = ? ORDER BY key DESC LIMIT ?",
            [kind, subject_id, limit],
        )
        return [make_row(MeasurementRow, row) for row in reversed(rows)]

    def thin_measurements(self, kind: str, subject_id: str, most: int) -> None:
        """Keep at most so many records of a kind about a subject, evenly spread, the first and the last among them."""
        with self._write() as db:
            wanted = "kind = ? AND subject_id = ?"
            rows = self._rows(f"SELECT key FROM measurements WHERE {wanted} ORDER BY key", [kind, subject_id])
            last = len(rows) - 1
            kept = {round(last * step / (most - 1)) for step in range(most)}
            if last >= most:
                for number in set(range(len(rows))) - kept:
                    db.execute("DELETE FROM measurements WHERE key = ?", [rows[number]["key"]])
