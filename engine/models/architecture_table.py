"""Write the table of architectures in docs/models.md anew: `python -m engine.models.architecture_table`."""

from __future__ import annotations

from pathlib import Path

from engine.models.architectures import ARCHITECTURES, Architecture

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- table of architectures: begin -->\n", "<!-- table of architectures: end -->\n"
FEATURES = {"experts": "experts", "recurrent": "recurrent layers", "latent": "latent attention", "mxfp4": "MXFP4"}


def table() -> str:
    """Return the table: a row for each architecture."""
    head = "| `model_type` | models | has | GGUF `general.architecture` |\n|---|---|---|---|\n"
    return head + "".join(map(_row, ARCHITECTURES.values()))


def _row(row: Architecture) -> str:
    features = ", ".join(word for field, word in FEATURES.items() if getattr(row, field))
    cells = (row.kind, row.models, features, ", ".join(row.gguf.names) if row.gguf else "")
    return f"| {' | '.join(cells)} |\n"


def renewed(document: str) -> str:
    """Return the document with the table of today."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "no place for the table is marked"
    assert end, "the end of the table is not marked"
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    DOCS.write_text(renewed(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
