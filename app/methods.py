"""The methods as plain data, for the command line, the HTTP API and the page."""

import dataclasses
from typing import Any


def methods_table() -> list[dict[str, Any]]:
    """Every method: name, family, summary, default (whether it is the one taken), budget, settings and their types."""
    import engine

    rows = []
    for name, kind in engine.METHODS.items():
        method = engine.make_method(name)
        settings = method.settings()
        rows.append(
            {
                "name": name,
                "family": kind.family,
                "summary": kind.summary,
                "default": name == engine.DEFAULT_METHOD,
                "budget": method.budget,
                "settings": {key: value for key, value in settings.items() if key != "budget"},
                "types": {field.name: str(field.type) for field in dataclasses.fields(kind) if field.name != "budget"},
            }
        )
    return rows
