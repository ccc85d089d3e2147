"""RTF as Outlook compresses it (MS-OXRTFCP): references to the last 4,096 bytes, which begin with usual RTF."""

import struct

_PRESET = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    + b"\r\n"
    + rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
_WINDOW = 4096
_PACKED, _PLAIN = b"LZFu", b"MELA"


def decompressed(data: bytes) -> bytes:
    """Return the RTF.

    Raises:
        ValueError: it is not compressed so, or cut off.
    """
    if len(data) < 16:
        raise ValueError("its RTF is cut off")
    _, size, kind, _ = struct.unpack_from("<LL4sL", data)
    if kind == _PLAIN:
        return data[16 : 16 + size]
    if kind != _PACKED:
        raise ValueError("its RTF is compressed in an unknown way")
    window = bytearray(_PRESET.ljust(_WINDOW, b"\0"))
    out, write, at = bytearray(), len(_PRESET), 16
    while at < len(data):
        control, at = data[at], at + 1
        for bit in range(8):
            if control >> bit & 1:
                if at + 2 > len(data):
                    raise ValueError("its RTF is cut off")
                place, length = divmod(data[at] << 8 | data[at + 1], 16)
                at += 2
                if place == write % _WINDOW:  # the end
                    return bytes(out)
                piece = bytearray()
                for offset in range(length + 2):
                    byte = window[(place + offset) % _WINDOW]
                    window[(write + offset) % _WINDOW] = byte
                    piece.append(byte)
            elif at < len(data):
                piece, at = bytearray(data[at : at + 1]), at + 1
                window[write % _WINDOW] = piece[0]
            else:
                break
            out += piece
            write += len(piece)
    if len(out) < size:
        raise ValueError("its RTF is cut off")
    return bytes(out[:size])
