"""The parts of an Open XML file and how they lead to one another, for what no library reads as it is needed."""

import posixpath
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from lxml import etree

from ingest.limits import Limits, read_member
from ingest.office import with_usual_names
from ingest.xml import parse_xml


@dataclass(frozen=True)
class Relation:
    """How one part leads to another."""

    kind: str  # the last word of its type, as "worksheet"
    target: str  # the name of a part; an address where it leads out of the file
    is_external: bool


class Package:
    """An archive whose parts are asked for by name. What cannot be unpacked raises as `read_member` does."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive, self._limits = archive, limits
        self._names = set(archive.namelist())

    def xml(self, name: str) -> etree._Element | None:
        """The root of a part, under the usual names; None where there is no such part.

        Raises:
            BrokenFile: it is no XML.
        """
        data = self.data(name)
        return None if data is None else parse_xml(with_usual_names(data), name)

    def data(self, name: str) -> bytes | None:
        """A part as it is; None where there is none."""
        return read_member(self._archive, name, self._limits) if name in self._names else None

    def elements(self, name: str, tag: str, until: str = "") -> Iterator[etree._Element]:
        """The elements of one name in a part, one at a time, each gone when the next is asked for; none without a part.

        until: at the end of an element of this name the rest is left unread.

        Raises:
            etree.XMLSyntaxError: it is no XML. Nothing is mended, as that would be a silent loss.
        """
        if name not in self._names:
            return
        with self._archive.open(name) as stream:
            yield from _one_by_one(stream, tag, until)

    def relations(self, name: str) -> dict[str, Relation]:
        """Where a part leads, by id; "" is the whole file."""
        folder, base = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        found = {}
        for each in () if root is None else root:
            target, external = each.get("Target") or "", each.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            kind = (each.get("Type") or "").rpartition("/")[2]
            found[each.get("Id") or ""] = Relation(kind, target, external)
        return found

    def related(self, relations: dict[str, Relation]) -> Callable[[str], bytes | None]:
        """What gives the part that one of these relations leads to, by its id."""

        def part(identity: str) -> bytes | None:
            relation = relations.get(identity)
            return None if relation is None or relation.is_external else self.data(relation.target)

        return part


def _one_by_one(stream: IO[bytes], tag: str, until: str) -> Iterator[etree._Element]:
    tags = [f"{{*}}{name}" for name in (tag, until) if name]
    parser = etree.iterparse(
        stream, tag=tags, resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    for _, element in parser:
        if until and element.tag.endswith(f"}}{until}"):
            return
        yield element
        element.clear()
        above = element.getparent()
        while above is not None and element.getprevious() is not None:
            del above[0]
