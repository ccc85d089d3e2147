"""Rows as HTML. Whatever comes from a document, a model or a person passes through `esc`, everywhere."""
