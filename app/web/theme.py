"""The theme of Gradio's components, and the page's head. `style.css`, `print.css` and `page.js` in assets/ do
the rest.
"""

import json
import re
from pathlib import Path

import gradio as gr

from app.language import LANGUAGES, words

SAID = re.compile(r'\bsay\("([^"\\]+)"\)')
"""Texts in the page's script."""

SANS = [
    "Inter",
    "-apple-system",
    "BlinkMacSystemFont",
    "Segoe UI",
    "Roboto",
    "Noto Sans",
    "Liberation Sans",
    "sans-serif",
]
MONO = ["ui-monospace", "SF Mono", "Cascadia Mono", "Menlo", "Liberation Mono", "monospace"]


def make_theme() -> gr.themes.Base:
    """Return Gradio's plainest theme with fonts of the system, so that nothing is fetched from another site."""
    return gr.themes.Base(
        font=SANS,
        font_mono=MONO,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
    )


def make_head(folder: Path) -> str:
    """Return the page's head: its script inline, so that it runs before Gradio draws, and the style for print.

    The script has its texts in all languages, as `TEXTS`.
    """
    script, paper = ((folder / name).read_text(encoding="utf-8") for name in ("page.js", "print.css"))
    own = SAID.findall(script)
    texts = {each: {text: words(each)[text] for text in own if text in words(each)} for each in LANGUAGES}
    known = json.dumps(texts, ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<meta name="color-scheme" content="light dark">\n<style media="print">\n{paper}</style>\n'
        f"<script>\nconst TEXTS = {known};\n{script}</script>\n"
    )
