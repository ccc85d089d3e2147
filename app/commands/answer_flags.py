"""Flags of `ask` and `chat` that say how to answer."""

import argparse
import json
from pathlib import Path
from typing import Any

from app.asking.answer_options import AnswerOptions
from app.commands.common import (
    Arguments,
)


def json_schema(path: str) -> dict[str, Any]:
    """Return the JSON schema in a file.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    try:
        schema = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no file with a JSON schema ({error}).") from error
    if not isinstance(schema, dict):
        raise argparse.ArgumentTypeError(f"{path} has no JSON object: write the JSON schema as one.")
    return schema


def add_answer_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to the parser of a command."""
    parser.add_argument("--session", metavar="S", help="session to go on with (default: a new one)")
    parser.add_argument(
        "--temperature",
        metavar="X",
        type=float,
        default=AnswerOptions.temperature,
        help="0 takes the likeliest token (default: the model's own, from its generation_config.json, or else 0)",
    )
    parser.add_argument(
        "--top-p",
        metavar="X",
        type=float,
        default=AnswerOptions.top_p,
        help="share of probability to sample from (default: the model's own, or else 1)",
    )
    parser.add_argument(
        "--top-k",
        metavar="N",
        type=int,
        default=AnswerOptions.top_k,
        help="likeliest tokens to sample from, 0 for all (default: the model's own, or else 0)",
    )
    parser.add_argument(
        "--min-p",
        metavar="X",
        type=float,
        default=AnswerOptions.min_p,
        help="leave out tokens less likely than this share of the likeliest (default: the model's own, or else 0)",
    )
    parser.add_argument(
        "--repetition-penalty",
        metavar="X",
        type=float,
        default=AnswerOptions.repetition_penalty,
        help="above 1: tokens that the answer has already become less likely (default: the model's own, or else 1)",
    )
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=int,
        default=AnswerOptions.max_tokens,
        help="longest answer, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--max-reasoning",
        metavar="N",
        type=int,
        help="tokens that a model that reasons first may take for it; 0: it answers at once (default: 0 for models of "
        f"up to 4B weights, else {AnswerOptions.max_reasoning})",
    )
    parser.add_argument(
        "--stop", metavar="TEXT", action="append", default=[], help="end the answer before TEXT (may be repeated)"
    )
    parser.add_argument(
        "--json-schema",
        metavar="FILE",
        type=json_schema,
        help="answer with JSON that fits the JSON schema in FILE, without reasoning",
    )
    parser.add_argument(
        "--pages",
        metavar="PAGES",
        default="",
        help="turn to these before each answer, whatever is remembered of them: 12-14,iii are pages as they are "
        "printed, where a PDF says how, or sections; '12 of the file' is a page by the file's own count; 3/40-45 are "
        "paragraphs of section 3; 2:5 is page 5 of the second of several documents; +12 keeps page 12 in view beside "
        "the passages that are found",
    )
    parser.add_argument(
        "--documents",
        metavar="DOCS",
        default="",
        help="answer from these of several documents: their numbers, ids or titles, with commas between them",
    )
    parser.add_argument(
        "--up-to",
        metavar="PAGE",
        default="",
        help="answer as of this page: nothing behind it is known (in the form of --pages)",
    )
    parser.add_argument(
        "--read-again",
        action=argparse.BooleanOptionalAction,
        default=AnswerOptions.read_again,
        help="find the passages that the question is about, read them again and answer from them alone (default: on)",
    )


def options_of(arguments: Arguments) -> AnswerOptions:
    """Return the options that the flags give."""
    return AnswerOptions(
        arguments.temperature,
        arguments.top_p,
        arguments.max_tokens,
        AnswerOptions.max_reasoning if arguments.max_reasoning is None else arguments.max_reasoning,
        reason=None if arguments.max_reasoning is None else True,
        stop=arguments.stop,
        read_again=arguments.read_again,
        top_k=arguments.top_k,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        json_schema=arguments.json_schema,
    )
