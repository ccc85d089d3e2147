"""Write requirements.lock, what Stockpot needs to run, and requirements-dev.lock, what else its tests do.

Both say what is installed now. What SmolLM2 comes in is left out, as model.lock names it, and so is what comes with a
build of torch for GPUs: the next build may need others.
"""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"nvidia-|cuda-|llm.smollm2\b")


def needed(name: str) -> set[str]:
    """Return what a package needs to run, without its extras, as names in their canonical form; itself included."""
    found: set[str] = set()
    open_ends = [(name, frozenset[str]())]
    seen = set()
    while open_ends:
        package, extras = open_ends.pop()
        if (package, extras) in seen:
            continue
        seen.add((package, extras))
        found.add(canonicalize_name(package))
        try:
            lines = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:  # a marker asks for it, and pip found that it does not
            continue
        for each in map(Requirement, lines):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                open_ends.append((each.name, frozenset(each.extras)))
    return found


def main() -> None:
    """Write both lists of pinned packages."""
    freeze = [sys.executable, "-m", "pip", "freeze", "--exclude-editable", "--disable-pip-version-check"]
    frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout.splitlines()
    lines = [re.sub(r"\+cpu$", "", line) for line in frozen if not LEFT_OUT.match(line)]
    lines = [f"{line}; sys_platform == 'linux'" if line.startswith("triton==") else line for line in lines]
    users = needed("stockpot")
    kept = [line for line in lines if canonicalize_name(Requirement(line).name) in users]
    others = [line for line in lines if line not in kept]
    # What builds Stockpot itself is in no package's list.
    kept.append(f"setuptools=={importlib.metadata.version('setuptools')}")
    (ROOT / "requirements.lock").write_text("\n".join(kept) + "\n")
    (ROOT / "requirements-dev.lock").write_text("\n".join(others) + "\n")


main()
