"""`stockpot ask`, `chat` and `branch`: ask questions over a context, and ask them again."""

import argparse
import io
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from app.asking.answer_options import AnswerOptions
from app.commands.answer_flags import add_answer_flags, options_of
from app.commands.common import (
    Arguments,
    Commands,
    ProgressLine,
    add_context,
    add_json_flag,
    note,
    note_other_model,
    note_warnings,
    open_service,
    print_json,
    source_line,
)
from app.commands.parser import examples
from app.commands.sweeps import add_sweep_flags, run_each, run_whole
from app.errors import AppError, UsageError, phrase, wrong_usage
from app.formatting import plural, printable, speed

if TYPE_CHECKING:
    from app.service import Service
    from sessions import SessionRow, TurnRow


ENDS = ("/quit", "/exit", "quit", "exit")
"""Lines that end a chat."""
SOURCE = ("document", "page", "place", "quote", "weight", "start", "end")
"""Facts of a source in `ask --json`."""
REASONED = ("reasoning_tokens", "reasoning_seconds")
"""Facts about reasoning in `ask --json`, beside its text."""


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `ask`, `chat` and `branch` to the parser."""
    ask = commands.add_parser(
        "ask",
        parents=[shared],
        help="ask one question",
        description="Ask one question over a context; of one that is still being read, or was stopped, what had been "
        "read at its last checkpoint. Standard output gets the answer alone, standard error the first three places "
        "where the model looked; --json has all of them. Ctrl-C stops the answer; what there is of it is kept. "
        "With --each and --columns, make a table instead: short answers of many documents to several questions. With "
        "--whole, list all that the question asks for.",
        epilog=examples(
            "ask 'Kim' 'Who is the horse-trader?'",
            "ask c-dee6mb 'What does it cost?' --pages 12-14 --json",
            "ask 'Kim' 'List all the cities' --whole",
            "ask --each 'Smith 2020' d-dee6mb --columns 'author; sample size; n: How many took part?' --format csv",
        ),
    )
    add_context(ask, nargs="?")
    ask.add_argument("question", metavar="QUESTION", nargs="?", help="the question, in quotes")
    add_answer_flags(ask)
    add_sweep_flags(ask)
    add_json_flag(ask)
    ask.set_defaults(run=run_ask)
    chat = commands.add_parser(
        "chat",
        parents=[shared],
        help="ask questions, one a line",
        description="Ask questions one after another; /quit or the end of input (Ctrl-D) ends it. Ctrl-C stops an "
        "answer; at a terminal another question can be asked then, and otherwise the chat ends. A question that is too "
        "long is left out; if it did not come from a terminal, the chat ends with 1 after the others.",
        epilog=examples("chat 'Kim'", "chat c-dee6mb < questions.txt"),
    )
    add_context(chat)
    add_answer_flags(chat)
    chat.set_defaults(run=run_chat)
    branch = commands.add_parser(
        "branch",
        parents=[shared],
        help="begin a session with the first turns of another, to ask something else from there",
        description="Begin a session with the first turns of another, which stays as it is, and print its id. "
        "To put the third question of SESSION in other words, keep two turns: `stockpot branch SESSION --turns 2`, "
        'then `stockpot ask CONTEXT "other words" --session NEW`. The same words ask it again. '
        "Turns that were stopped or failed count, but are not copied.",
    )
    branch.add_argument("session", metavar="SESSION", help="id of a session, a prefix of it, or its title")
    branch.add_argument("--turns", type=int, metavar="N", help="turns to keep (default: all but the last)")
    branch.add_argument(
        "--context",
        metavar="CONTEXT",
        help="go on over this one, which began with the same documents: as they were read in another way, or with more "
        "behind them (all turns are kept then, unless --turns says otherwise)",
    )
    add_json_flag(branch)
    branch.set_defaults(run=run_branch)


def _session_of(service: "Service", arguments: Arguments) -> "Callable[[], SessionRow]":
    """Return a function that returns the session to ask in: the named one, or a new one at each call."""
    from app.asking.named_pages import split_names
    from app.asking.turns import checked_pages, new_session, with_documents
    from app.listing import find_context, find_session

    context = find_context(service, arguments.context)
    session = find_session(service, arguments.session) if arguments.session else None
    if session and session.context_id != context.id:
        raise AppError(f"Session {session.id} is over context {session.context_id}, not {context.id}.")
    note_other_model(arguments, context)
    documents = split_names(arguments.documents)
    arguments.pages = with_documents(service, context, arguments.pages, documents, arguments.up_to)
    checked_pages(service, context, arguments.pages)
    from engine import device_named  # loads slowly

    device_named(arguments.device)  # before a session or question is kept
    return lambda: session or new_session(service, context.id)


def run_ask(arguments: Arguments) -> int:
    """Answer one question, or make a table or a list; return 1 if it was stopped."""
    from app.asking.turns import checked_question

    if arguments.each is not None or arguments.columns is not None:
        return run_each(arguments)
    if arguments.question is None:
        raise UsageError("Name a context and a question, or documents with --each and questions with --columns.")
    if arguments.whole:
        return run_whole(arguments)
    question = checked_question(arguments.question)  # before a session is begun
    options = options_of(arguments)
    with open_service(arguments) as service:
        begin = _session_of(service, arguments)
        turn = _answer(service, begin(), question, options, arguments.pages, quiet=arguments.json)
    if turn.status == "cancelled":
        return 1
    if arguments.json:
        print_json(result_of(turn))
    return 0


def run_chat(arguments: Arguments) -> int:
    """Answer questions from standard input until it ends; return 1 if a program asked one that was refused."""
    from app.asking.turns import checked_question

    options = options_of(arguments)
    session, status = None, 0
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are no UTF-8 are replaced
    with open_service(arguments) as service:
        begin = _session_of(service, arguments)
        note("/quit or the end of input (Ctrl-D) ends it.")
        for line in iter(_line, ""):
            if not line.strip():
                continue
            if line.strip().casefold() in ENDS:
                break
            try:
                question = checked_question(line)
                if session is None:  # not before the first question
                    session = begin()
                    note(f"Session {session.id}.")
                turn = _answer(service, session, question, options, arguments.pages)
            except Exception as error:
                if not wrong_usage(error):
                    raise
                note(f"stockpot: {phrase(error)}")  # later questions can still be asked
                status = int(not sys.stdin.isatty())
                continue
            if turn.status == "cancelled" and not sys.stdin.isatty():
                return 1
        return status


def _line() -> str:
    """Return the next line with its end, "" at the end of input. At a terminal, the line can be edited."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(ImportError):  # missing on some systems
            import readline  # noqa: F401  # gives input() its editing and its history
        try:
            return input("> ") + "\n"
        except EOFError:
            return ""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def _answer(
    service: "Service",
    session: "SessionRow",
    question: str,
    options: AnswerOptions,
    pages: str,
    quiet: bool = False,
) -> "TurnRow":
    """Answer a question; Ctrl-C stops the answer.

    Args:
        service: the home in use.
        session: the session.
        question: the question.
        options: options for the answer.
        pages: pages to answer from alone; "" for none.
        quiet: print nothing except, on standard error, that it was stopped.
    """
    from app.asking.turns import answer, keep_question
    from app.listing import titles_before_places
    from engine.signals import asked_to_stop

    with asked_to_stop() as asked, ProgressLine() as progress:

        def on_stage(words: str) -> None:
            if words:
                progress.show(words)
            else:
                progress.end()

        turn = keep_question(service, session.id, question, pages)
        show = (lambda text: None) if quiet else _show
        turn = answer(service, turn.id, options, show, asked, _Thinking(), on_stage)
    if not quiet:
        print(flush=True)
        note_sources(turn, titles_before_places(service, session.context_id))
    if turn.status == "cancelled":
        note(f"Stopped; the question is kept in session {session.id}, and the next one goes on without it.")
    return turn


def run_branch(arguments: Arguments) -> int:
    """Begin a session with the first turns of another."""
    from app.asking.turns import branch
    from app.listing import details, find_context, find_session

    with open_service(arguments) as service:
        session = find_session(service, arguments.session)
        over = find_context(service, arguments.context).id if arguments.context else session.context_id
        usual = session.turns if over != session.context_id else max(0, session.turns - 1)
        begun = branch(service, session.id, usual if arguments.turns is None else arguments.turns, over)
        facts = details(service, "session", begun)
    if arguments.json:
        print_json(facts)
    else:
        print(begun.id)
        note(f'Ask on: stockpot ask {begun.context_id} "..." --session {begun.id}')
    return 0


def _show(text: str) -> None:
    """Print a piece of an answer as it comes."""
    print(printable(text), end="", flush=True)


class _Thinking:
    """Says once on standard error that the model reasons before it answers."""

    said = False

    def __call__(self, text: str) -> None:
        if not self.said:
            self.said = True
            note("Thinking ...")


def result_of(turn: "TurnRow") -> dict[str, Any]:
    """Return the object of `ask --json`. Facts about reasoning, `seed` and `pages` are there only if used."""
    measured = turn.measurements
    reasoned = {"reasoning": turn.reasoning} | {name: measured.get(name) for name in REASONED}
    return {
        "session": turn.session_id,
        "turn": turn.id,
        "answer": turn.answer,
        **(reasoned if turn.reasoning else {}),
        "found": measured.get("found", True),
        "sure": measured.get("sure"),
        "unsupported": measured.get("unsupported", []),
        "quotations": measured.get("quotations", []),
        "sources": [{key: source[key] for key in SOURCE} for source in turn.sources],
        "citations": measured.get("citations", []),
        "time_to_first_token_seconds": measured.get("time_to_first_token_seconds"),
        "tokens_per_second": measured.get("tokens_per_second"),
        "prompt_tokens": measured.get("prompt_tokens"),
        "answer_tokens": measured.get("answer_tokens"),
        **({"pages": turn.pages} if turn.pages else {}),
        "read_again_tokens": measured.get("read_again_tokens", 0),
        "kv_entries": measured.get("kv_entries"),
        "kv_bytes": measured.get("kv_bytes"),
        "sampling": measured.get("sampling", {}),
        **({"seed": measured["seed"]} if "seed" in measured else {}),
        "warnings": measured.get("warnings", []),
    }


def note_sources(turn: "TurnRow", titles: dict[str, str]) -> None:
    """Print the first places that the model attended to, and the speed. titles: words before a place, by document."""
    measured = turn.measurements
    for source in turn.sources[:3] if measured.get("found", True) else []:
        note(source_line(source, titles))
    if measured:
        took = [f"{measured['time_to_first_token_seconds']:.2f} s to the first token"]
        if tokens := measured.get("reasoning_tokens", 0):
            took.append(f"{measured.get('reasoning_seconds', 0):.1f} s of reasoning ({plural(tokens, 'token')})")
        if measured["tokens_per_second"]:  # an answer of one token has no speed
            took.append(f"{speed(measured['tokens_per_second'])} tokens/s")
        note(f"  {', '.join(took)}. Session {turn.session_id}.")
    note_warnings(measured.get("warnings", []))
