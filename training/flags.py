"""Command-line options made from a dataclass of settings: one for each field."""

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any


def settings_parser(settings: type[Any], prog: str) -> argparse.ArgumentParser:
    """A parser whose namespace holds exactly the fields of `settings`, a dataclass in which each has a default."""
    parser = argparse.ArgumentParser(
        prog=prog, description=settings.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for field in fields(settings):
        flag, default = "--" + field.name.replace("_", "-"), field.default
        assert default is not MISSING, f"{field.name} has no default"
        if isinstance(default, bool):
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=default, help="default: %(default)s"
            )
        else:
            kind = Path if default is None or isinstance(default, Path) else type(default)
            parser.add_argument(flag, type=kind, default=default, help="default: %(default)s")
    return parser
