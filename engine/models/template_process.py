"""Render a model's chat template in a process of its own, because a template is a program.

Run as a script, this file is that process. It imports only Jinja, so that it starts in a fraction of a second. The
system ends it when it takes too much time or memory, even within a single call.
"""

from __future__ import annotations

import datetime
import functools
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

RENDER_SEC = 0.5  # of processor time for all conversations; a template takes a few milliseconds
RENDER_BYTES = 256 << 20  # of memory
WAIT_SEC = 60.0  # for a process that neither works nor ends
TEMPLATE_CHARACTERS, PROMPT_CHARACTERS = 1 << 20, 100_000  # of a template, and of its prompt; the longest has 30,000


def render(
    template: str, conversations: Sequence[list[dict[str, str]]], variables: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Render conversations as transformers' `apply_chat_template` does with a prompt for an answer.

    Returns:
        For each conversation either its "text", or the "error" that it raised.

    Raises:
        ValueError: a limit is passed, or there is no such template.
    """
    if len(template) > TEMPLATE_CHARACTERS:
        raise ValueError(f"it has {len(template):,} characters, more than {TEMPLATE_CHARACTERS:,}")
    limits = {"seconds": RENDER_SEC, "bytes": RENDER_BYTES}
    given = {"template": template, "conversations": conversations, "variables": variables, "limits": limits}
    return _rendered(json.dumps(given))


@functools.lru_cache(maxsize=32)
def _rendered(given: str) -> list[dict[str, str]]:
    process = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(process, input=given.encode(), capture_output=True, timeout=WAIT_SEC, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"it does not end within {WAIT_SEC:g} s") from None
    if hasattr(signal, "SIGPROF") and done.returncode == -signal.SIGPROF:
        raise ValueError(f"it does not end within {RENDER_SEC:g} s")
    if done.returncode:
        raise ValueError(f"it takes more than {RENDER_BYTES >> 20} MiB of memory, or ends the program that renders it")
    rendered: list[dict[str, str]] = json.loads(done.stdout)
    return rendered


def main() -> None:
    """Render the conversations given on standard input."""
    given = json.loads(sys.stdin.buffer.read())
    _limit(**given["limits"])
    rendered = []
    for messages in given["conversations"]:
        try:
            template = _environment().from_string(given["template"])
            known = {"tools": None, "documents": None, "add_generation_prompt": True, **given["variables"]}
            text = template.render(messages=messages, **known)
            if len(text) > PROMPT_CHARACTERS:
                raise ValueError(f"it makes {len(text):,} characters, more than {PROMPT_CHARACTERS:,}")
            rendered.append({"text": text})
        except MemoryError:
            sys.exit(1)
        except Exception as error:  # a template may raise anything
            said = str(error)[:PROMPT_CHARACTERS]
            rendered.append({"error": said if " " in said else f"{type(error).__name__} {said}"})
    sys.stdout.write(json.dumps(rendered))


def _limit(seconds: float, bytes: int) -> None:
    """Have the system end this process when it takes more; Windows has no such limits but `WAIT_SEC`."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # nobody catches its signal, so that no call outlasts it
        resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))


class _Generation(Extension):
    """The tag around the model's own words, for training. Here it is left out."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    """A namespace without names that begin with an underscore, as transformers has it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        given = dict(*rest, **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no names that begin with an underscore: {name!r:.80}")


class _Dict:
    """Makes dictionaries, and has no other attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _environment() -> ImmutableSandboxedEnvironment:
    """Return transformers' environment for chat templates."""
    found = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    found.filters["tojson"] = _tojson
    found.globals |= {"raise_exception": _raise, "strftime_now": _now, "dict": _Dict(), "namespace": _Namespace}
    return found


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


if __name__ == "__main__":
    main()
