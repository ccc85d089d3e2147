"""Mailboxes in one file (mbox), as Thunderbird keeps and Gmail exports them, and archives of mailing lists.

Each mail is a section of its own, cited by its subject and date. Mails that were deleted in Thunderbird, which leaves
them in the file, are not read; damaged ones that cannot be are counted in a warning.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

from ingest.document import Reading, count
from ingest.errors import EmptyDocument
from ingest.formats.mail import Mail, header, not_read, parse
from ingest.limits import Limits
from ingest.sections import Block, paginate

# The line before each mail: the sender and a date, or nothing more. What follows it is a header of the mail.
_BORDER = re.compile(rb"From (?:\s*|(?=[^\n]*\d:\d\d)(?=[^\n]*\b(?:19|20)\d\d\b)[^\n]*)\n")
_LONGEST_BORDER = 300  # bytes
_HEADER = re.compile(rb"[!-9;-~]{1,100}:")
_FIRST_HEADER = re.compile(
    rb"(?:Return-Path|Received|Message-I[dD]|Delivered-To|X-[\w-]+|From|Date|MIME-Version|Status):"
)
_QUOTED = re.compile(rb">+From ")  # a line of the text that would else look like such a border
_BOM = b"\xef\xbb\xbf"
_LINE_BYTES = 1 << 20
_EXPUNGED = 0x8  # among Thunderbird's flags


def begins(head: bytes) -> bool:
    """Whether a file that begins so is a mailbox."""
    first, _, after = head.removeprefix(_BOM).lstrip(b"\r\n").partition(b"\n")
    return _parts(first + b"\n", after)


def read(path: Path, limits: Limits) -> Reading:
    """Read a mailbox, a mail at a time.

    Raises:
        TooLarge, EmptyDocument.
    """
    blocks: list[Block] = []
    subjects: list[str] = []
    characters, lost, warnings, unread = 0, 0, dict[str, None](), dict[str, None]()
    for data in _mails(path, limits):
        try:
            mail = parse(data, path.name)
        except MemoryError:
            raise
        except Exception:  # BrokenFile, and whatever Python's parser stumbles over: the others are not lost by it
            lost += 1
            continue
        said = [Block(mail.head), *mail.blocks] if mail.head else mail.blocks
        if not said or _is_deleted(mail):
            continue
        blocks += [replace(said[0], toc=((1, _title(mail)),)), *said[1:]]
        subjects.append(mail.subject)
        characters += sum(len(block.text) for block in said)
        limits.check(path.name, "characters", characters, limits.characters)
        warnings.update(dict.fromkeys(mail.warnings))
        unread.update(dict.fromkeys(mail.unread))
    if lost:
        warnings[f"Not read: {count(lost, 'mail')} that cannot be understood."] = None
    pages, toc = paginate(blocks, given_toc=True)
    if not pages:
        raise EmptyDocument(f"{path.name} has no mail with text in it: add another mailbox.")
    return Reading(pages, toc, [*subjects] if len(subjects) == 1 else [], [*warnings, *not_read(list(unread))])


def _mails(path: Path, limits: Limits) -> Iterator[bytes]:
    """The mails of a file, without the lines between them."""
    lines: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        if file.read(len(_BOM)) != _BOM:
            file.seek(0)
        pieces = iter(partial(file.readline, _LINE_BYTES), b"")
        blank = True
        for line, following in pairwise(chain(pieces, [b""])):
            # Some programs put no blank line before it: then a header follows that only mails have.
            border = _parts(line, following) and (
                blank or bool(_FIRST_HEADER.match(following) and line.strip(b"From \r\n"))
            )
            blank = not line.strip()
            if border:
                if lines:
                    yield b"".join(lines)
                lines, size = [], 0
                continue
            size += len(line)
            limits.check(path.name, "bytes in one mail", size, limits.text_member_bytes)
            lines.append(line[1:] if _QUOTED.match(line) else line)
    if lines:
        yield b"".join(lines)


def _parts(line: bytes, following: bytes) -> bool:
    """Whether a line stands before a mail, if a blank one or nothing stands before it."""
    if not line.startswith(b"From ") or len(line) > _LONGEST_BORDER:
        return False
    return bool(_BORDER.fullmatch(line)) and bool(_HEADER.match(following))


def _is_deleted(mail: Mail) -> bool:
    flags = header(mail.message, "X-Mozilla-Status")
    return bool(re.fullmatch(r"[0-9A-Fa-f]{4}", flags)) and bool(int(flags, 16) & _EXPUNGED)


def _title(mail: Mail) -> str:
    """What it is about, and when it was sent: a subject alone comes again in every answer."""
    sent = None
    with suppress(Exception):  # as above
        sent = mail.message["Date"].datetime
    subject = mail.subject or "No subject"
    return f"{subject} ({sent:%Y-%m-%d})" if sent else subject
