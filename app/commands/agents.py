"""`stockpot mcp`: serve the documents of a home to agents, over standard input and output."""

import argparse

from app.commands.common import Arguments, Commands, note, open_service
from app.commands.parser import examples
from app.errors import AppError


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `mcp` to the parser."""
    parser = commands.add_parser(
        "mcp",
        parents=[shared],
        help="let an agent list, read, ask and quote documents",
        description="Serve the Model Context Protocol on standard input and output, until they are closed: tools that "
        "list documents, show contents and pages, ask, and check quotations. They change nothing. An agent starts this "
        "command itself: name it in the agent's configuration.",
        epilog=examples("mcp", "--home DIR mcp"),
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Serve an agent until it closes standard input."""
    try:
        import mcp  # noqa: F401  # an extra
    except ImportError as error:
        raise AppError(
            "mcp needs a package that is missing: .venv/bin/pip install -e '.[mcp]', in Stockpot's folder, brings it."
        ) from error
    from anyio import CapacityLimiter, from_thread
    from anyio.to_thread import run_sync

    from app.api.agent_tools import agent_server
    from app.asking.answer_options import AnswerOptions
    from app.asking.answers import Checked, Place, ask_alone

    with open_service(arguments) as service:
        one = CapacityLimiter(1)  # a model answers one question at a time

        async def ask(context: str, question: str, pages: str) -> Checked:
            def answered() -> Checked:
                return ask_alone(service, Place(context, pages), question, AnswerOptions(), from_thread.check_cancelled)

            return await run_sync(answered, limiter=one)

        note(f"Serving {service.home} to an agent on standard input and output; Ctrl-D ends it.")
        agent_server(service, ask).run("stdio")
    return 0
