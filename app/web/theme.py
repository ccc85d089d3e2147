"""The theme of Gradio's components, and the page's head. `style.css`, `print.css` and `page.js` in assets/ do
the rest.
"""

from pathlib import Path

import gradio as gr

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
    """Return the page's head: its script inline, so that it runs before Gradio draws, and the style for print."""
    script, paper = ((folder / name).read_text(encoding="utf-8") for name in ("page.js", "print.css"))
    return (
        f'<meta name="color-scheme" content="light dark">\n<style media="print">\n{paper}</style>\n'
        f"<script>\n{script}</script>\n"
    )
