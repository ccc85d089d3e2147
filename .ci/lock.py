"""Write the lists of pinned packages with their hashes, and docs/licences.md, from pyproject.toml.

requirements.lock has all that Stockpot needs to run but torch, requirements-cuda.lock PyPI's build of torch with
NVIDIA's libraries, requirements-dev.lock what tests and checks need besides. torch for the CPU alone is in
requirements-cpu.lock, which is written by hand. Pins stay as they are unless pyproject.toml or an argument of
`uv pip compile`, such as `--upgrade-package gradio`, asks for others.
"""

import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = [ROOT / f"requirements{part}.lock" for part in ("", "-cuda", "-dev")]
CUDA = re.compile(r"torch==|(nvidia|cuda)-|triton==")
LICENCES = """# Licences

What `make run` installs, with the licence that each package states; –: only other systems or versions of Python install
it. `make lock` writes this page. pymupdf-layout and pymupdf4llm are empty packages that PyMuPDF asks for. SmolLM2 is in
[NOTICE](../NOTICE). PyTorch's build for NVIDIA's GPUs brings NVIDIA's libraries, which are under NVIDIA's own terms,
and Triton (MIT).

| package | version | licence |
|---|---|---|
"""


def compile_pins(*arguments: str) -> list[str]:
    """Return a block of lines for each package that pyproject.toml needs: its pin, then the hashes of its files."""
    with tempfile.NamedTemporaryFile("w+", suffix=".lock") as pins:
        pins.writelines(path.read_text() for path in LISTS if path.exists())
        pins.flush()
        told = ["--universal", "--generate-hashes", "--no-annotate", "--no-header", "--no-emit-package=pip", "--quiet"]
        line = ["uv", "pip", "compile", "pyproject.toml", "--python-version=3.11", "-o", pins.name, *told, *arguments]
        subprocess.run([sys.executable, "-m", *line], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        blocks = re.split(r"\n(?=\S)", Path(pins.name).read_text().rstrip("\n"))
    return [f"{block}\n" for block in blocks]


def licence(name: str) -> str:
    """Return the licence that the metadata of an installed package states, in one line."""
    told = metadata(name)
    classifiers = [each for each in told.get_all("Classifier") or [] if each.startswith("License ::")]
    text = told.get("License-Expression") or (told.get("License") or "").strip().partition("\n")[0]
    return text or ", ".join(each.rpartition(" :: ")[2] for each in classifiers) or "not in its metadata"


def main() -> None:
    """Write the three lists and the page of licences."""
    everything = compile_pins("--extra=dev", *sys.argv[1:])
    LISTS[2].write_text("".join(everything))  # so that the next call takes the same pins
    needed = compile_pins(*sys.argv[1:])
    users = [block for block in needed if not CUDA.match(block)]
    cuda = [block for block in needed if CUDA.match(block)]
    names = {block.partition("==")[0] for block in [*users, *cuda]} - {"triton"}
    others = [block for block in everything if block.partition("==")[0] not in names]
    for path, blocks in zip(LISTS, (users, cuda, others), strict=True):
        path.write_text("".join(blocks))
    torch = [block for block in cuda if block.startswith("torch==")]
    rows = []
    for name, version in re.findall(r"^(\S+?)==(\S+)", "".join([*users, *torch]), re.MULTILINE):
        try:
            rows.append(f"| {name} | {version} | {licence(name)} |\n")
        except PackageNotFoundError:
            rows.append(f"| {name} | {version} | – |\n")
    (ROOT / "docs" / "licences.md").write_text(LICENCES + "".join(rows))


main()
