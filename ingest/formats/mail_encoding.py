"""Encodings of mails: words of headers, base64 in pieces or with a footer, and uuencoded files in the text."""

import binascii
import itertools
import quopri
import re
from base64 import b64encode
from email.message import MIMEPart

from ingest.charset import decode, known_encoding

_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_BLANKS = re.compile(rb"[ \t]+(?=\r?(?:\n|\Z))")
_FULL = 60  # characters of a full line of base64
_UUENCODED = re.compile(r"^begin [0-7]{3,4} (\S[^\n]*)\n(?:[ -`]{1,62}\r?\n)*?[ `]?\r?\n?end[ \t]*$\n?", re.MULTILINE)
_WORD = re.compile(r"=\?([\w.:-]+)(?:\*[\w-]*)?\?([bBqQ])\?([^?]*)\?=")
_WORDS = re.compile(rf"{_WORD.pattern}(?:[ \t\r\n]+{_WORD.pattern})*")  # blanks between them are no part of the text


def words_in_utf8(header: str) -> str:
    """Return a header with its encoded words (RFC 2047) in UTF-8, decoded as the text of a mail is.

    Python decodes each word by itself, strictly in the encoding that it names. So it loses letters whose bytes lie in
    two words, and signs that only a superset of the encoding has. Words in unknown encodings stay as they are.
    """

    def again(found: re.Match[str]) -> str:
        words = []
        for name, same in itertools.groupby(_WORD.finditer(found[0]), lambda word: word[1].casefold()):
            if known_encoding(name):
                text = decode(b"".join(_word_bytes(word[2], word[3]) for word in same), name)[0]
                words.append(f"=?utf-8?b?{b64encode(text.encode()).decode()}?=" if text else "")
            else:
                words += [word[0] for word in same]
        return " ".join(words)

    return _WORDS.sub(again, header)


def _word_bytes(coding: str, coded: str) -> bytes:
    raw = coded.encode("ascii", "ignore")
    return _decoded([raw]) if coding in "bB" else binascii.a2b_qp(raw, header=True)


def decoded_payload(part: MIMEPart) -> bytes:
    """Return the decoded bytes of a part, with all pieces of base64. Python stops at the first padding."""
    raw = part.get_payload(decode=False)
    coding = str(part.get("Content-Transfer-Encoding", "")).strip().casefold()
    if coding == "quoted-printable" and isinstance(raw, str):  # blanks at line ends were put there on the way
        return quopri.decodestring(_BLANKS.sub(b"", raw.encode("utf-8", "surrogateescape")))
    if coding != "base64" or not isinstance(raw, str):
        decoded = part.get_payload(decode=True)
        return decoded if isinstance(decoded, bytes) else b""
    pieces: list[bytes] = []
    coded: list[bytes] = []
    ended = False  # a piece ended, by padding or a short line
    lines = [line.strip() for line in raw.encode("utf-8", "surrogateescape").splitlines()]
    for index, line in enumerate(lines):
        if not line:
            continue
        is_coded = bool(_BASE64.fullmatch(line)) and (not ended or len(line) >= _FULL or _ends_piece(lines[index:]))
        if is_coded:
            coded.append(line)
            if line.endswith(b"="):
                pieces.append(_decoded(coded))
                coded, ended = [], True
            continue
        if coded:
            pieces.append(_decoded(coded))
            coded, ended = [], True
        pieces.append((b"" if not pieces or pieces[-1].endswith(b"\n") else b"\n") + line + b"\n")
    return b"".join([*pieces, _decoded(coded)])


def _ends_piece(lines: list[bytes]) -> bool:
    """Return whether the first line ends a piece of base64, by its padding and whole groups of four."""
    first = lines[0]
    return first.endswith(b"=") and len(first) % 4 == 0


def _decoded(lines: list[bytes]) -> bytes:
    whole = b"".join(lines).rstrip(b"=")
    whole = whole[: len(whole) - (len(whole) % 4 == 1)]
    try:
        return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))
    except binascii.Error:
        return b""


def strip_uuencoded(text: str) -> tuple[str, list[str]]:
    """Remove uuencoded files from a text; also return their names."""
    names = [found[1].strip() for found in _UUENCODED.finditer(text)]
    return (_UUENCODED.sub("", text), names) if names else (text, [])
