"""The parts of an Open XML file and how they lead to one another, for what no library reads as it is needed.

Parts are known by the relations that lead to them and by their types. Programs name them as they like, in any case.
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import IO
from xml.sax.saxutils import quoteattr

from lxml import etree

from ingest.archive import Members
from ingest.limits import Limits, read_member
from ingest.markup.xml import parse_xml
from ingest.office.common import OPEN, with_usual_names

TYPES = "[Content_Types].xml"
_NAMESPACE = "http://schemas.openxmlformats.org/package/2006"
_OF_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
_KINDS = (("wordprocessingml|ms-word", "docx"), ("presentationml|ms-powerpoint", "pptx"), ("spreadsheetml", "xlsx"))
_KINDS_OTHERWISE = (("ms-excel.sheet.binary", "xlsb"), ("ms-excel", "xlsx"), ("visio", "visio"))
_ROOTS = {b"document": "docx", b"presentation": "pptx", b"workbook": "xlsx", b"VisioDocument": "visio"}
_ROOT = re.compile(rb"<(?:\w+:)?(document|presentation|workbook|VisioDocument)[\s>]")
_USUAL = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml", "xl/workbook.bin", "visio/document.xml")
_FOLDERS = (("word/", "docx"), ("ppt/", "pptx"), ("xl/workbook.bin", "xlsb"), ("xl/", "xlsx"), ("visio/", "visio"))
_MAIN_TYPES = {
    "docx": f"{OPEN}.wordprocessingml.document.main+xml",
    "pptx": f"{OPEN}.presentationml.presentation.main+xml",
}
# What the libraries must know by its type, by the relations that lead there.
_TYPES_BY_KIND = {
    **{kind: f"{OPEN}.wordprocessingml.{kind}+xml" for kind in ("styles", "numbering", "settings", "footnotes")},
    **{kind: f"{OPEN}.presentationml.{kind}+xml" for kind in ("slide", "slideLayout", "slideMaster")},
    **{kind: f"{OPEN}.presentationml.{kind}+xml" for kind in ("notesSlide", "notesMaster")},
    "core-properties": "application/vnd.openxmlformats-package.core-properties+xml",
}
_OF_WORDS = re.compile(
    r"footnotes|endnotes|comments\w*|slide|notesSlide|chart\w*|diagramData|worksheet|sharedStrings|aFChunk|subDocument"
)


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
        self._members = Members(archive)
        self.doubts: list[str] = []  # about the XML of its parts

    def xml(self, name: str) -> etree._Element | None:
        """The root of a part, under the usual names; None where there is no such part.

        Raises:
            BrokenFile: it is no XML.
        """
        data = self.data(name)
        return None if data is None else parse_xml(with_usual_names(data), name, self.doubts)

    def data(self, name: str) -> bytes | None:
        """A part as it is; None where there is none."""
        found = self._members.find(name) if name else None
        return None if found is None else read_member(self._archive, self._members.names[found], self._limits)

    def elements(self, name: str, tag: str, until: str = "") -> Iterator[etree._Element]:
        """The elements of one name in a part, one at a time, each gone when the next is asked for; none without a part.

        until: at the end of an element of this name the rest is left unread.

        Raises:
            etree.XMLSyntaxError: it is no XML. Nothing is mended, as that would be a silent loss.
        """
        found = self._members.find(name) if name else None
        if found is None:
            return
        with self._archive.open(self._members.names[found]) as stream:
            yield from _one_by_one(stream, tag, until)

    def has(self, name: str) -> bool:
        """Whether there is a part of that name."""
        return bool(name) and self._members.find(name) is not None

    def relations(self, name: str) -> dict[str, Relation]:
        """Where a part leads, by id; "" is the whole file. A place in the part itself is no part of the file."""
        folder, base = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        found = {}
        for each in () if root is None else root:
            if not isinstance(each.tag, str):
                continue
            target, external = each.get("Target") or "", each.get("TargetMode") == "External"
            if not external and target.startswith("#"):
                external = True
            if not external:
                target = posixpath.join("/", folder, target.replace("\\", "/").partition("#")[0])
                target = self._members.find(target) or posixpath.normpath(target).lstrip("/")
            kind = (each.get("Type") or "").rpartition("/")[2]
            found[each.get("Id") or ""] = Relation(kind, target, external)
        return found

    def related(self, relations: dict[str, Relation]) -> Callable[[str], bytes | None]:
        """What gives the part that one of these relations leads to, by its id."""

        def part(identity: str) -> bytes | None:
            relation = relations.get(identity)
            return None if relation is None or relation.is_external else self.data(relation.target)

        return part

    @cached_property
    def main(self) -> str:
        """The part that the file begins with: a document, a presentation, a workbook; "" where there is none."""
        led_to = [each.target for each in self.relations("").values() if each.kind == "officeDocument"]
        typed = [name for name in self._members.names if ".main+xml" in self.type_of(name)]
        return next((found for name in (*led_to, *typed, *_USUAL) if (found := self._members.find(name))), "")

    @property
    def kind(self) -> str:
        """What it is: "docx", "pptx", "xlsx", or "xlsb" or "visio", which are not read; "" for anything else."""
        if not self.main:
            return ""
        said = self.type_of(self.main)
        for words, kind in (*_KINDS_OTHERWISE[:1], *_KINDS, *_KINDS_OTHERWISE[1:]):
            if re.search(words, said):
                return kind
        if root := _ROOT.search((self.data(self.main) or b"")[:4096]):
            return _ROOTS[root[1]]
        return next((kind for start, kind in _FOLDERS if self.main.casefold().startswith(start)), "")

    def type_of(self, name: str) -> str:
        """What a part says that it is; "" where it does not say."""
        overrides, defaults = self._types
        return overrides.get(name.casefold()) or defaults.get(posixpath.splitext(name)[1].lstrip(".").casefold(), "")

    @cached_property
    def _types(self) -> tuple[dict[str, str], dict[str, str]]:
        root = self.xml(TYPES)
        overrides, defaults = {}, {}
        for each in () if root is None else root.iter("{*}Override"):
            overrides[(each.get("PartName") or "").replace("\\", "/").lstrip("/").casefold()] = (
                each.get("ContentType") or ""
            )
        for each in () if root is None else root.iter("{*}Default"):
            defaults[(each.get("Extension") or "").casefold()] = each.get("ContentType") or ""
        return overrides, defaults

    def lean_copy(self) -> tuple[io.BytesIO, list[str]]:
        """A package that the libraries can open, and the parts with words that it names but lacks.

        Its XML stands under the usual names, its relations lead to parts that are there, and every part says its type;
        pictures, recordings and files are empty.

        Raises:
            TooLarge, or what `read_member` raises.
        """
        copy = io.BytesIO()
        names = [name for name in self._members.names if not (name.endswith(".rels") or name == TYPES)]
        kinds = {self.main: "officeDocument"}
        lost: dict[str, None] = {}
        with zipfile.ZipFile(copy, "w") as lean:
            for owner in ("", *names):
                relations = self.relations(owner)
                if not owner and not any(each.target == self.main for each in relations.values()):
                    relations["rMain"] = Relation("officeDocument", self.main, False)
                if relations:
                    folder, base = posixpath.split(owner)
                    there = dict(self._alive(owner, relations, kinds, lost))
                    lean.writestr(posixpath.join(folder, "_rels", f"{base}.rels"), _written(there))
            types = {name: self._known_type(name, kinds.get(name, "")) for name in names}
            for name, said in types.items():
                is_xml = name.endswith(".xml") or said.endswith("xml")
                lean.writestr(name, with_usual_names(self.data(name) or b"") if is_xml else b"")
            lean.writestr(TYPES, _declared(types))
        return copy, list(lost)

    def _alive(
        self, owner: str, relations: dict[str, Relation], kinds: dict[str, str], lost: dict[str, None]
    ) -> Iterator[tuple[str, tuple[str, Relation]]]:
        """Relations with their full types, by id; one that leads to nothing leads out of the file."""
        root = self.xml(posixpath.join(posixpath.dirname(owner), "_rels", f"{posixpath.basename(owner)}.rels"))
        types = {each.get("Id") or "": each.get("Type") or "" for each in (() if root is None else root.iter("{*}*"))}
        for identity, each in relations.items():
            kind = types.get(identity) or f"{_OF_OFFICE}{each.kind}"
            if each.is_external or self.has(each.target):
                if not each.is_external:
                    kinds.setdefault(each.target, each.kind)
                yield identity, (kind, each)
                continue
            if _OF_WORDS.fullmatch(each.kind):
                lost[each.target] = None
            yield identity, (kind, Relation(each.kind, f"/{each.target}", True))

    def _known_type(self, name: str, kind: str) -> str:
        said = with_usual_names(self.type_of(name).encode()).decode()
        if name == self.main and not said.endswith(".main+xml"):
            return _MAIN_TYPES.get(self.kind, said)
        if said in ("", "application/xml"):
            said = _TYPES_BY_KIND.get(kind, said)
        return said or ("application/xml" if name.endswith(".xml") else "application/octet-stream")


def _written(relations: dict[str, tuple[str, Relation]]) -> str:
    lines = []
    for identity, (kind, each) in relations.items():
        target = quoteattr(each.target if each.is_external else f"/{each.target}")
        mode = ' TargetMode="External"' if each.is_external else ""
        lines.append(f"<Relationship Id={quoteattr(identity)} Type={quoteattr(kind)} Target={target}{mode}/>")
    return f'<Relationships xmlns="{_NAMESPACE}/relationships">{"".join(lines)}</Relationships>'


def _declared(types: dict[str, str]) -> str:
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    lines = [f'<Default Extension="rels" ContentType="{relations}"/>']
    lines += [
        f"<Override PartName={quoteattr(f'/{name}')} ContentType={quoteattr(said)}/>" for name, said in types.items()
    ]
    return f'<Types xmlns="{_NAMESPACE}/content-types">{"".join(lines)}</Types>'


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
