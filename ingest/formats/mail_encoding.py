"""The bytes of a part of a mail, however it was coded to be sent: base64 in pieces, or with a footer; uuencode."""

import binascii
import re
from email.message import MIMEPart

_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_FULL = 60  # characters of a line of base64 that another follows
_UUENCODED = re.compile(r"^begin [0-7]{3,4} (\S[^\n]*)\n(?:[ -`]{1,62}\r?\n)*?[ `]?\r?\n?end[ \t]*$\n?", re.MULTILINE)


def payload(part: MIMEPart) -> bytes:
    """What a part says, decoded. Python ends at the first padding of base64, and so loses what follows it."""
    raw = part.get_payload(decode=False)
    if str(part.get("Content-Transfer-Encoding", "")).strip().casefold() != "base64" or not isinstance(raw, str):
        decoded = part.get_payload(decode=True)
        return decoded if isinstance(decoded, bytes) else b""
    pieces: list[bytes] = []
    coded: list[bytes] = []
    ended = False  # by padding, or a line shorter than those before it
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
    """Whether lines begin with a whole piece of base64: up to its padding, or an end of whole groups of four."""
    first = lines[0]
    return first.endswith(b"=") and len(first) % 4 == 0


def _decoded(lines: list[bytes]) -> bytes:
    whole = b"".join(lines).rstrip(b"=")
    whole = whole[: len(whole) - (len(whole) % 4 == 1)]
    try:
        return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))
    except binascii.Error:
        return b""


def without_uuencoded(text: str) -> tuple[str, list[str]]:
    """Text without the files that older mail programs put in it in letters, and the names of these."""
    names = [found[1].strip() for found in _UUENCODED.finditer(text)]
    return (_UUENCODED.sub("", text), names) if names else (text, [])
