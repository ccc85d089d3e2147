"""The texts that Gradio's components are built with, in all languages: Gradio shows those of the browser's."""

import re
from collections.abc import Iterator
from typing import Any

import gradio as gr

from app.language import LANGUAGES, speaking, told

TEXTS = ("label", "placeholder", "info")
"""Attributes of components that people see."""
GRADIO = {"upload_text.click_to_upload": "Click to choose files"}
"""Texts of Gradio's own that say something else in some languages, such as "download", by its names for them."""
_IN_MARKUP = re.compile(r'(?<=>)[^<>]*\w[^<>]*(?=<)|(?<=aria-label=")[^"]+')
"""Texts in HTML: between tags, and for screen readers."""


def translate(blocks: gr.Blocks) -> gr.I18n:
    """Let Gradio translate the texts of a page; return their translations. Texts without any stay as they are."""
    found = {text: text for text in static_texts(blocks)}
    said: dict[str, dict[str, str]] = {"en": {**found, **GRADIO}}
    for language in LANGUAGES:
        with speaking(language):
            said[language] = {name: _translated(text) for name, text in said["en"].items()}
    i18n = gr.I18n(**said)
    known = {text for each in LANGUAGES for text in found if said[each][text] != text}

    def marked(text: Any) -> Any:
        return i18n(text) if isinstance(text, str) and text in known else text

    for block in blocks.blocks.values():
        for name in _names(block):
            setattr(block, name, marked(getattr(block, name, None)))
        if isinstance(block, gr.Radio):
            block.choices = [(marked(shown), value) for shown, value in block.choices]
    return i18n


def static_texts(blocks: gr.Blocks) -> Iterator[str]:
    """Yield the texts of a page's components; those of HTML with its markup."""
    for block in blocks.blocks.values():
        yield from filter(_is_text, (getattr(block, name, None) for name in _names(block)))
        if isinstance(block, gr.Radio):
            yield from (shown for shown, _ in block.choices if _is_text(shown))


def parts_of(text: str) -> list[str]:
    """Return the texts to translate in a static text: itself, or those between its tags."""
    return [each.strip() for each in _IN_MARKUP.findall(text)] if "<" in text else [text]


def _names(block: Any) -> tuple[str, ...]:
    return (*TEXTS, "value") if isinstance(block, gr.Button | gr.UploadButton | gr.HTML) else TEXTS


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _translated(text: str) -> str:
    if "<" not in text:
        return told(text)
    return _IN_MARKUP.sub(lambda found: found[0].replace(found[0].strip(), told(found[0].strip())), text)
