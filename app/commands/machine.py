"""`stockpot methods` and `stockpot doctor`: list the methods, and check this machine."""

import argparse

from app.commands.common import Arguments, Commands, add_json_flag, chosen_model, print_json


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `methods` and `doctor` to the parser."""
    parser = commands.add_parser(
        "methods",
        parents=[shared],
        help="list the methods and their settings",
        description="List the methods, the settings that --model is read with, and their presets, which "
        "`ingest --set preset=NAME` takes.",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_methods)
    parser = commands.add_parser(
        "doctor",
        parents=[shared],
        help="check this machine and installation",
        description="Check this machine and installation; the exit status is 1 if something that is needed is missing.",
    )
    parser.add_argument(
        "--read-data",
        action="store_true",
        help="also read every row, text and saved state in the home, and compare it with what was written",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="take whole readings that the database does not know back in, and index what is searched anew",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_doctor)


def run_methods(arguments: Arguments) -> int:
    """List the methods and their settings."""
    from app.machine.model_names import default_model
    from app.reading.methods import methods_table

    rows = methods_table(chosen_model(arguments) or default_model(arguments.home))
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        mark = " (default)" if row["default"] else ""
        print(f"{row['name']}{mark}, {row['family']}: {row['summary']}")
        settings = {"budget": row["budget"]} | row["settings"]
        print("    " + ", ".join(f"{key}={_typed(value)}" for key, value in settings.items()))
        if row["presets"]:
            print("    preset: " + ", ".join(row["presets"]))
    return 0


def _typed(value: object) -> str:
    """Return a setting's value as --set takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def run_doctor(arguments: Arguments) -> int:
    """Check everything; return 1 if something that is needed is missing."""
    from app.machine.doctor import examine

    model = chosen_model(arguments)
    checks = examine(arguments.home, model, arguments.device, arguments.read_data, arguments.repair)
    fit = all(check.ok or not check.needed for check in checks)
    if arguments.json:
        print_json({"ok": fit, "checks": [vars(check) for check in checks]})
    else:
        for check in checks:
            mark = "ok  " if check.ok else ("FAIL" if check.needed else "note")
            print(f"{mark}  {check.name}: {check.detail}" + (f" {check.advice}" if check.advice else ""))
    return 0 if fit else 1
