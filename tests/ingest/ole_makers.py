"""OLE files made by hand, and the mails of Outlook in them."""

import struct
from pathlib import Path

SECTOR, SMALL, CUTOFF = 512, 64, 4096
_FREE, _END, _TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
Streams = dict[str, "bytes | Streams"]


def ole(path: Path, streams: Streams) -> Path:
    """Write an OLE file of streams, and of folders of streams. Siblings hang in a chain, each to the right."""
    entries: list[list] = [["Root Entry", 5, _FREE, 0, b""]]  # name, kind, child, right sibling, data

    def add(inside: Streams) -> int:
        first = before = _FREE
        for name in sorted(inside, key=lambda each: (len(each), each.upper())):
            data = inside[name]
            entry = [name, 2 if isinstance(data, bytes) else 1, _FREE, _FREE, data if isinstance(data, bytes) else b""]
            entries.append(entry)
            number = len(entries) - 1
            if before == _FREE:
                first = number
            else:
                entries[before][3] = number
            before = number
            if not isinstance(data, bytes):
                entry[2] = add(data)
        return first

    entries[0][3] = _FREE
    entries[0][2] = add(streams)
    small, sectors, table, small_table = bytearray(), bytearray(), [], []

    def chain(into: list[int], count: int) -> int:
        start = len(into)
        into += [*range(start + 1, start + count), _END] if count else []
        return start if count else _END

    def put(data: bytes) -> int:
        count = -(-len(data) // SECTOR)
        sectors.extend(data.ljust(count * SECTOR, b"\0"))
        return chain(table, count)

    starts = []
    for _, _, _, _, data in entries:
        if len(data) >= CUTOFF:
            starts.append(put(data))
        else:
            count = -(-len(data) // SMALL)
            small += data.ljust(count * SMALL, b"\0")
            starts.append(chain(small_table, count))
    starts[0] = put(bytes(small))
    index = put(struct.pack(f"<{len(small_table)}L", *small_table).ljust(SECTOR, b"\xff"))
    listed = b""
    for number, (name, kind, child, right, data) in enumerate(entries):
        coded = name.encode("utf-16-le")
        size = len(small) if number == 0 else len(data)
        listed += coded.ljust(64, b"\0") + struct.pack("<HBBLLL", len(coded) + 2, kind, 1, _FREE, right, child)
        listed += bytes(36) + struct.pack("<LQ", starts[number], size)
    folder = put(listed)
    tables = -(-(len(table) + 1) // (SECTOR // 4 - 1)) or 1
    own = list(range(len(table), len(table) + tables))
    table += [_TABLE] * tables
    sectors += struct.pack(f"<{len(table)}L", *table).ljust(tables * SECTOR, b"\xff")
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<LLLLLLLLL", 0, tables, folder, 0, CUTOFF, index, 1, _END, 0)
    head += struct.pack("<109L", *own, *[_FREE] * (109 - tables))
    path.write_bytes(head + bytes(sectors))
    return path


def outlook(path: Path, texts: dict[str, str | bytes], attached: tuple[dict[str, str], ...] = ()) -> Path:
    """Write a mail of Outlook: its properties by number, and those of its attachments. Bytes are HTML or RTF."""

    def properties(values: dict[str, str | bytes] | dict[str, str], header: int) -> Streams:
        streams: Streams = {}
        for number, value in values.items():
            kind, data = ("001F", value.encode("utf-16-le")) if isinstance(value, str) else ("0102", value)
            streams[f"__substg1.0_{number}{kind}"] = data
        numbers = struct.pack("<HHLLL", 3, 0x3FDE, 6, 65001, 0) + struct.pack(
            "<HHLQ", 0x40, 0x39, 6, 132645312000000000
        )
        return streams | {"__properties_version1.0": bytes(header) + numbers}

    files = {f"__attach_version1.0_#{number:08X}": properties(each, 8) for number, each in enumerate(attached)}
    return ole(path, properties(texts, 32) | files)
