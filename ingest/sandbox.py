"""Confinement of the process that parses files, by Landlock and seccomp where the Linux kernel has them.

A fault of a parser could run code of whoever made the file. Confined, that code can read the file itself and installed
programs, but no other document; it can write nothing, and it reaches no network. LibreOffice, which opens old Office
files, may also write in a folder made for it, and make local sockets in /tmp, without which it does not start.
"""

import ctypes
import logging
import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROGRAMS = tuple(map(Path, ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/opt", "/nix", "/sys/devices/system", "/dev")))
"""Folders of programs, libraries, fonts and facts about the machine."""
FACTS = (
    *(Path("/etc") / name for name in ("ld.so.cache", "localtime", "mime.types", "fonts", "alternatives")),
    *(Path("/proc") / name for name in ("cpuinfo", "meminfo", "stat", "sys")),  # but nothing about other processes
)
OFFICE = tuple(map(Path, ("/etc/libreoffice", "/var/lib/libreoffice", "/var/spool/libreoffice")))
"""Settings of LibreOffice in some systems."""
SOCKETS = Path("/tmp")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_VERSION = 1  # a flag: tell the version instead
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_SOCKET = 1 << 9
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # version -> number of rights about files
_NET_RIGHTS = 0b11  # to bind and connect TCP; from version 4
_SCOPES = 0b11  # abstract sockets, and signals to others; from version 6
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_SOCKET_CALL = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # machine -> (audit name, number of socket)
_AF_UNIX = 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
_X32 = 0x40000000  # calls of another interface begin here

log = logging.getLogger(__name__)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 if it has none or it is off."""
    if sys.platform != "linux":
        return 0
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION))


def confine(files: Iterable[Path], office: Path | None = None) -> None:
    """Confine this process: it may read `files` and installed programs, write nothing, and open local sockets alone.

    Call it before another thread begins. Files that are open stay open. A part that the kernel cannot do is left out.

    Args:
        files: the files.
        office: a folder for LibreOffice to write in; None if it is not needed.
    """
    if sys.platform != "linux" or _prctl(_NO_NEW_PRIVS, 1):
        return
    version = landlock_version()
    if version:
        _restrict_files(version, files, office)
    if platform.machine() in _SOCKET_CALL:
        _refuse_sockets(*_SOCKET_CALL[platform.machine()])


def _restrict_files(version: int, files: Iterable[Path], office: Path | None) -> None:
    count = max(rights for since, rights in _FILE_RIGHTS.items() if since <= version)
    rules = _Ruleset((1 << count) - 1, _NET_RIGHTS if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        log.warning("files are parsed without Landlock: %s", os.strerror(ctypes.get_errno()))
        return
    here = Path(__file__).resolve().parent
    python = {Path(sys.prefix), Path(sys.base_prefix), *(Path(each).resolve() for each in sys.path if each)}
    python -= {here.parent}  # it may hold people's files too
    tessdata = filter(None, [os.environ.get("TESSDATA_PREFIX")])
    for folder in (*PROGRAMS, *FACTS, *python, here, *map(Path, tessdata)):
        _allow(ruleset, folder, _READ_FILE | _READ_DIR | _EXECUTE)
    for path in files:
        _allow(ruleset, path, _READ_FILE)
    _allow(ruleset, Path(os.devnull), _READ_FILE | _WRITE_FILE)
    if office:
        _allow(ruleset, office, rules.files)
        _allow(ruleset, SOCKETS, _MAKE_SOCKET)
        for folder in OFFICE:
            _allow(ruleset, folder, _READ_FILE | _READ_DIR)
    if _syscall(_RESTRICT_SELF, ruleset, 0):
        log.warning("files are parsed without Landlock: %s", os.strerror(ctypes.get_errno()))
    os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    with suppress(OSError):  # it is not there
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not path.is_dir():
            rights &= ~_READ_DIR
        _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(rights, place)), 0)
        os.close(place)


def _refuse_sockets(machine: int, socket: int) -> None:
    """Refuse sockets that are not local, and calls of another machine's interface, which would have other numbers."""
    load, equal, least, give = 0x20, 0x15, 0x35, 0x06
    steps = (
        (load, 0, 0, 4),  # the machine
        (equal, 0, 5, machine),
        (load, 0, 0, 0),  # the call
        (least, 3, 0, _X32),
        (equal, 0, 3, socket),
        (load, 0, 0, 16),  # its first argument
        (equal, 1, 0, _AF_UNIX),
        (give, 0, 0, _REFUSE),
        (give, 0, 0, _ALLOW),
    )
    instructions = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    program = _Program(len(steps), instructions)
    if _prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program)):
        log.warning("files are parsed without seccomp: %s", os.strerror(ctypes.get_errno()))


def _syscall(*call: object) -> int:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return int(function(*call))


def _prctl(option: int, value: int, pointer: object = None) -> int:
    word = ctypes.c_ulong
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, word(value), pointer or word(0), word(0), word(0)))
