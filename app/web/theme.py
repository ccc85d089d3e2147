"""The look that Gradio's own components take, and the little JavaScript of the page. The style sheet does the rest."""

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
    """Gradio's plainest theme, with fonts of the system so that nothing is fetched from anywhere."""
    return gr.themes.Base(
        font=SANS,
        font_mono=MONO,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
    )


HEAD = """
<meta name="color-scheme" content="light dark">
<script>
(() => {
  const apply = () => {
    if (!document.body) return;
    const wanted = localStorage.getItem("stockpot-theme");
    if (wanted) document.body.classList.toggle("dark", wanted === "dark");
  };
  let shown = "";
  const unfolded = new Set();  // a turn that is being answered is drawn anew at every tick: what was unfolded stays so
  const follow = () => {
    const talk = document.querySelector("#conversation");
    if (talk && talk.dataset.follow !== "no") talk.scrollTop = talk.scrollHeight;
    const live = document.querySelector("#live-turn .turn");
    if (live && live.id !== shown) { shown = live.id; live.scrollIntoView({ block: "nearest" }); }
    for (const each of document.querySelectorAll("details[data-fold]"))
      if (unfolded.has(each.dataset.fold) && !each.dataset.met) each.open = true, each.dataset.met = "yes";
    const where = document.querySelector("#where [data-query]");
    if (where && where.dataset.query !== location.search)
      history.replaceState(null, "", location.pathname + where.dataset.query);
  };
  const menu = (open) => {
    document.querySelector("#frame").dataset.menu = open ? "open" : "";
    document.querySelector("[data-action=menu]")?.setAttribute("aria-expanded", String(open));
  };
  const start = () => {
    apply();
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-action]");
      if (button && button.dataset.action === "theme") {
        const next = document.body.classList.contains("dark") ? "light" : "dark";
        localStorage.setItem("stockpot-theme", next);
        apply();
      }
      if (button && button.dataset.action === "menu") menu(document.querySelector("#frame").dataset.menu !== "open");
      if (event.target.closest("#new-reading, #new-session")) menu(false);
    });
    document.addEventListener("change", (event) => { if (event.target.closest("#shelf .list")) menu(false); });
    document.addEventListener("toggle", (event) => {
      const fold = event.target.dataset?.fold;
      if (fold && event.target.isConnected) unfolded[event.target.open ? "add" : "delete"](fold);
    }, true);
    document.addEventListener("scroll", (event) => {
      const talk = event.target;
      if (talk.id !== "conversation") return;
      talk.dataset.follow = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80 ? "yes" : "no";
    }, true);
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (event.key === "/" && !typing) {
        const field = document.querySelector("#question textarea");
        if (field) { event.preventDefault(); field.focus(); }
      }
    });
    new MutationObserver(follow).observe(document.body, {
      childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["data-query"] });
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
</script>
"""
