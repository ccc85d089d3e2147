"""`stockpot serve`: serve the web page and the HTTP API."""

import argparse

from app.commands.common import Arguments, Commands
from app.commands.parser import examples


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `serve` to the parser."""
    parser = commands.add_parser(
        "serve",
        parents=[shared],
        help="open the web page",
        description="Serve the web page and the HTTP API until stopped with Ctrl-C.",
        epilog=examples("serve --open", "--model Qwen/Qwen3-4B:nf4 serve", "serve --host 0.0.0.0 --auth me:secret"),
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on; any but a loopback one demands --auth (default: %(default)s)",
    )
    parser.add_argument("--port", metavar="N", type=int, default=7860, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        default="8GiB",
        help="what open contexts may take together, of the GPU's memory and of the machine's each; the least recently "
        "used are put away (default: %(default)s)",
    )
    parser.add_argument(
        "--no-introductions",
        dest="introduce",
        action="store_false",
        help="do not let the model sum up each document and suggest questions, in the background after it is read",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser once it is there")
    parser.add_argument(
        "--auth",
        metavar="USER:PASSWORD",
        help="name and password that everybody must give ($STOCKPOT_AUTH keeps them out of the list of processes)",
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Serve the page and the API until stopped."""
    from app.web.server import serve

    return serve(arguments)
