"""Mailboxes in one file (mbox), from Thunderbird, Gmail's export or the archive of a mailing list.

Each mail is a section, cited by its subject and date. Mails deleted in Thunderbird stay in the file and are not read.
A warning counts damaged mails.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.formats.mail import Mail, header_text, parse_mail, unread_warning
from ingest.limits import Limits
from ingest.sample import is_mail_border
from ingest.sections import Block, paginate
from ingest.wording import count

_FIRST_HEADER = re.compile(
    rb"(?:Return-Path|Received|Message-I[dD]|Delivered-To|X-[\w-]+|From|Date|MIME-Version|Status):"
)
_QUOTED = re.compile(rb">+From ")  # a text line that was escaped because it looks like a border
_BOM = b"\xef\xbb\xbf"
_LINE_BYTES = 1 << 20
_EXPUNGED = 0x8  # one of Thunderbird's flags: deleted


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a mailbox, a mail at a time.

    Raises:
        TooLarge: too many characters, or bytes in one mail.
        EmptyDocument: no mail with text.
    """
    limits = options.limits
    blocks: list[Block] = []
    subjects: list[str] = []
    characters, lost, warnings, unread = 0, 0, dict[str, None](), dict[str, None]()
    for data in _mails(path, limits):
        try:
            mail = parse_mail(data, path.name)
        except MemoryError:
            raise
        except Exception:  # one bad mail must not lose the others
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
    return Content(pages, toc, [*subjects] if len(subjects) == 1 else [], [*warnings, *unread_warning(list(unread))])


def _mails(path: Path, limits: Limits) -> Iterator[bytes]:
    """Yield the mails of a file, without the border lines between them."""
    lines: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        if file.read(len(_BOM)) != _BOM:
            file.seek(0)
        pieces = iter(partial(file.readline, _LINE_BYTES), b"")
        blank = True
        for line, following in pairwise(chain(pieces, [b""])):
            # Some programs put no blank line before a border. Then a header that only mails have must follow.
            border = is_mail_border(line, following) and (
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


def _is_deleted(mail: Mail) -> bool:
    flags = header_text(mail.message, "X-Mozilla-Status")
    return bool(re.fullmatch(r"[0-9A-Fa-f]{4}", flags)) and bool(int(flags, 16) & _EXPUNGED)


def _title(mail: Mail) -> str:
    """Return a mail's subject with its date, since many mails share a subject."""
    sent = None
    with suppress(Exception):  # the parser fails on some dates
        sent = mail.message["Date"].datetime
    subject = mail.subject or "No subject"
    return f"{subject} ({sent:%Y-%m-%d})" if sent else subject
