"""Every route of the app, from its own table, and requests that name a path in each place of each route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import FastAPI

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Route(NamedTuple):
    """A method and an address, with a {name} for each of its parameters."""

    method: str
    path: str


def routes_of(app: FastAPI) -> list[Route]:
    """Return all routes of an app, with those of the routers and apps inside it.

    Raises:
        LookupError: the table lacks a route that the app's description has.
    """
    found: dict[Route, None] = {}
    waiting: list[tuple[str, Any]] = [("", each) for each in app.routes]
    while waiting:
        before, each = waiting.pop(0)
        if hasattr(each, "effective_candidates"):  # a router, whose routes know the whole path
            inside = [*each.effective_candidates(), *each.effective_low_priority_routes()]
            waiting += [(before, one) for one in inside]
            continue
        path = before + getattr(each, "path", "")
        found |= {Route(method, path): None for method in getattr(each, "methods", None) or () if method in METHODS}
        waiting += [(path, one) for one in getattr(each, "routes", None) or ()]
    described = {Route(method.upper(), path) for path, each in app.openapi()["paths"].items() for method in each}
    if missing := described - found.keys():
        raise LookupError(f"The table lacks {missing}: routes are kept in another way now.")
    return list(found)


def paths(outside: Path, home: Path) -> list[str]:
    """Return names of a file beside the home: absolute, relative, through the home, encoded, and as addresses."""
    relative = f"../{outside.name}"
    plain = [
        str(outside),
        relative,
        f"../../{relative}",
        f"{home}/../{outside.name}",
        "/etc/passwd",
        "../../etc/passwd",
    ]
    coded = [quote(each, safe="") for each in plain[:3]] + [quote(quote(str(outside), safe=""), safe="")]
    windows = [relative.replace("/", "\\"), f"{relative}\x00.png", f"....//{outside.name}"]
    return [*plain, *coded, f"file://{outside}", f"http://127.0.0.1:9/{outside.name}", *windows]


def requests(app: FastAPI, route: Route, path: str, ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield addresses and contents of requests to a route, with the path in each place in turn.

    Args:
        app: the app, whose description names the fields.
        route: the route.
        path: the path.
        ids: ids of things that are kept, for the other parameters of addresses.
    """
    holes = re.findall(r"\{[^}]+\}", route.path)
    for hole in range(max(1, len(holes))):
        address = route.path
        for number, each in enumerate(holes):
            known = next((id for id in ids if id[0] == f"{route.path}//".split("/")[2][:1]), "1")
            address = address.replace(each, path if number == hole else "1" if "number" in each else known, 1)
        named = _fields(app, route)
        yield address, {"params": dict.fromkeys(named, path) | {"path": path, "file": path, "url": path}}
        if route.method == "GET":
            continue
        file = {"path": path, "url": path, "orig_name": "x.txt", "meta": {"_type": "gradio.FileData"}}
        yield address, {"json": {"data": [file] * 8, "fn_index": 14, "session_hash": "q", "files": [file]}}
        yield address, {"files": {"files": (path.replace("\x00", ""), b"Words. " * 30)}, "data": {"model": path}}
        whole = {name: _filled(kind, path) for name, kind in named.items()}
        yield address, {"json": whole}
        for name in named:
            kept = {each: _filled(named[each], ids[0]) for each in named}
            yield address, {"json": {**kept, name: whole[name]}}
            yield address, {"json": {name: path}}
            yield address, {"data": {name: path}}
            yield address, {"data": {name: path}, "files": {"files": ("x.txt", b"Words. " * 30)}}


def _fields(app: FastAPI, route: Route) -> dict[str, Any]:
    """Return the fields of a route's query and body by name, with their schemas."""
    described = app.openapi()
    facts = described["paths"].get(route.path, {}).get(route.method.lower(), {})
    named = {each["name"]: each.get("schema", {}) for each in facts.get("parameters", []) if each["in"] == "query"}
    for content in facts.get("requestBody", {}).get("content", {}).values():
        reference = content["schema"].get("$ref", "").rpartition("/")[2]
        named |= described["components"]["schemas"].get(reference, {}).get("properties", {})
    return named


def _filled(kind: dict[str, Any], path: str) -> Any:
    """Return a value for a field: the path, in a list if it takes one, or a number."""
    each = [kind, *kind.get("anyOf", [])]
    types = [one.get("type") for one in each]
    if "array" in types:
        items = next(one.get("items", {}) for one in each if one.get("type") == "array")
        if items.get("$ref", "").endswith("/Message"):
            part = {"type": "file", "file": {"file_id": path}, "file_id": path}
            return [{"role": "user", "content": [{"type": "text", "text": path}, part]}]
        return [path]
    if "string" in types or "$ref" in kind:
        return path
    return {"path": path} if "object" in types else False if "boolean" in types else 1
