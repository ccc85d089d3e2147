"""Rows as HTML. Every text from a document, a model or a person passes through `esc`."""
