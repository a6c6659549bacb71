"""Runs the program of a stdio upstream in isolation. A script of its own: it imports nothing of the hub.

    python -I launcher.py PARENT_PID SPECIFICATION PROGRAM ARG...

The environment of the program is the JSON object in the variable LAUNCH_ENVIRONMENT; this process obeys none of it.

This process supervises. The program runs in a session of its own, with resource limits and, where the kernel has it,
within Landlock: it reads and executes what SPECIFICATION lists, writes to its own directory, and opens no TCP
connections unless that is allowed. Unless the network is allowed, a filter (seccomp) also refuses every socket but
pairs of connected ones. When the program ends, when the hub ends, or on SIGTERM, everything that the
program started is killed: orphans become children of this process, wherever they went.

If SPECIFICATION names a control group, the program runs in it, and the group is killed and removed at the end.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
# The same on x86-64 and ARM64.
SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH = 1
QUERY_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REFER, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READING = EXECUTE | READ_FILE | READ_DIR
BIND_AND_CONNECT_TCP = 3
SCOPE_SOCKETS_AND_SIGNALS = 3
# The rights that each version of Landlock's interface knows.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
WITH_NETWORK, WITH_SCOPES = 4, 6

PR_SET_SECCOMP, FILTER_MODE = 22, 2
ALLOW, REFUSE, KILL_PROCESS = 0x7FFF0000, 0x00050000 | errno.EACCES, 0x80000000
# Of the data that a filter reads: the number of the call, the architecture, and the low half of an argument.
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD = 0, 4, 16, 24, 32
LOAD, AND, EQUALS, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
# By machine: the architecture of its calls, and the numbers of socket and socketpair. The two others are the same on
# both. A ring makes sockets without the calls that are filtered, and pidfd_getfd takes those of others.
MACHINES = {"x86_64": (0xC000003E, 41, 53), "aarch64": (0xC00000B7, 198, 199)}
SYS_IO_URING_SETUP, SYS_PIDFD_GETFD = 425, 438
# The calls of x32 on x86-64 have numbers from here on.
X32 = 0x40000000
AF_UNIX, AF_NETLINK, NETLINK_ROUTE = 1, 16, 0
SOCK_STREAM, SOCK_SEQPACKET, TYPES = 1, 5, 0xF

GIB = 1024 * 1024 * 1024
LIMITS = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 1024), (resource.RLIMIT_FSIZE, GIB))
DATA_BYTES = 4 * GIB
END_SECONDS = 3.0
NOT_STARTED = 127
ENVIRONMENT = "LAUNCH_ENVIRONMENT"
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 if the kernel has none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc.syscall(SYS_CREATE_RULESET, None, 0, QUERY_VERSION)))


def restrict(readable: Iterable[str], writable: Iterable[str], *, network: bool) -> bool:
    """Restrict this process and its children permanently. Returns False if the kernel has no Landlock."""
    version = landlock_version()
    if not version:
        return False
    rights = RIGHTS[min(version, max(RIGHTS))]
    ruleset = _Ruleset(rights, 0 if network else BIND_AND_CONNECT_TCP, SCOPE_SOCKETS_AND_SIGNALS)
    size = 24 if version >= WITH_SCOPES else 16 if version >= WITH_NETWORK else 8
    rules = _checked(_libc.syscall(SYS_CREATE_RULESET, ctypes.byref(ruleset), size, 0))
    for paths, access in ((readable, READING), (writable, rights & ~EXECUTE)):
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # what does not exist needs no rule
                continue
            # A file, or all that is beneath a directory. Not pathlib, which costs start-up time.
            allowed = access & rights & (~0 if os.path.isdir(path) else OF_FILES)  # noqa: PTH112
            rule = _Beneath(allowed, opened)
            _checked(_libc.syscall(SYS_ADD_RULE, rules, RULE_PATH_BENEATH, ctypes.byref(rule), 0))
            os.close(opened)
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.syscall(SYS_RESTRICT_SELF, rules, 0))
    os.close(rules)
    return True


def has_seccomp() -> bool:
    """Whether the kernel can refuse system calls, on a machine whose calls are known here."""
    machine = os.uname().machine
    # A 32-bit program on a 64-bit kernel has other calls.
    if not sys.platform.startswith("linux") or machine not in MACHINES or ctypes.sizeof(ctypes.c_void_p) != 8:  # noqa: PLR2004
        return False
    # A kernel that has filters looks for the one that is missing here.
    _libc.prctl(PR_SET_SECCOMP, FILTER_MODE, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def refuse_sockets() -> bool:
    """Refuse this process and its children all sockets, permanently. Returns False if the kernel cannot.

    What is left: pairs that are connected to each other for ever, and the list of addresses of this host (netlink).
    """
    if not has_seccomp():
        return False
    architecture, socket, socketpair = MACHINES[os.uname().machine]
    # Each line is an instruction: what to do, with which value, and how many to skip if it holds, and if not.
    lines = (
        (LOAD, ARCHITECTURE, 0, 0),
        (EQUALS, architecture, 1, 0),
        (RETURN, KILL_PROCESS, 0, 0),
        (LOAD, NUMBER, 0, 0),
        (AT_LEAST, X32, 17, 0),
        (EQUALS, SYS_IO_URING_SETUP, 16, 0),
        (EQUALS, SYS_PIDFD_GETFD, 15, 0),
        (EQUALS, socketpair, 2, 0),
        (EQUALS, socket, 8, 0),
        (RETURN, ALLOW, 0, 0),
        # Of other types, such as datagrams and raw ones, a pair can send to other sockets later.
        (LOAD, FIRST, 0, 0),
        (EQUALS, AF_UNIX, 0, 10),
        (LOAD, SECOND, 0, 0),
        (AND, TYPES, 0, 0),
        (EQUALS, SOCK_STREAM, 1, 0),
        (EQUALS, SOCK_SEQPACKET, 0, 6),
        (RETURN, ALLOW, 0, 0),
        (LOAD, FIRST, 0, 0),
        (EQUALS, AF_NETLINK, 0, 3),
        (LOAD, THIRD, 0, 0),
        (EQUALS, NETLINK_ROUTE, 0, 1),
        (RETURN, ALLOW, 0, 0),
        (RETURN, REFUSE, 0, 0),
    )
    program = (_Instruction * len(lines))(*(_Instruction(code, jt, jf, k) for code, k, jt, jf in lines))
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(_Filter(len(lines), program)), 0, 0))
    return True


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _run(specification: dict[str, Any], command: list[str], environment: dict[str, str]) -> NoReturn:
    """Become the program."""
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if specification["cgroup"]:
            _write(f"{specification['cgroup']}/cgroup.procs", "0")
        for limit, value in (*LIMITS, (resource.RLIMIT_DATA, DATA_BYTES)):
            hard = resource.getrlimit(limit)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (bound, bound))
        os.chdir(specification["directory"])
        restrict(specification["readable"], specification["writable"], network=specification["network"])
        if not specification["network"]:
            refuse_sockets()
        for number in (*SIGNALS, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execve(command[0], command, environment)  # noqa: S606 - a shell is what it is to do without
    except OSError as error:
        sys.stderr.write(f"The program cannot be started: {error}\n")
        sys.stderr.flush()
        os._exit(NOT_STARTED)


def _write(path: str, text: str) -> None:
    """Write to a file of a control group. Raises OSError."""
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        file.write(text)


def _kill_all(group: int, cgroup: str) -> None:
    """Kill the program and all that it started, and reap them. Their control group is removed."""
    deadline = time.monotonic() + END_SECONDS
    if cgroup:
        with suppress(OSError):
            _write(f"{cgroup}/cgroup.kill", "1")
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    while time.monotonic() < deadline:
        with suppress(OSError):
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - as above
                children = file.read().split()
            for child in children:
                with suppress(OSError):
                    os.kill(int(child), signal.SIGKILL)
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not ended:
            time.sleep(0.01)
    while cgroup and time.monotonic() < deadline:
        try:
            os.rmdir(cgroup)  # noqa: PTH106 - as above
        except FileNotFoundError:
            return
        except OSError:
            # What was killed may take a moment to leave it.
            time.sleep(0.01)


def _supervise(group: int, cgroup: str) -> int:
    """Wait for the program and return its exit status. Everything else that it started is killed."""

    def end(_number: int, _frame: object) -> None:
        _kill_all(group, cgroup)
        os._exit(0)

    for number in SIGNALS:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # The pipes belong to the program alone, so that each side notices when the other one ends.
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            os.close(descriptor)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == group:
            _kill_all(group, cgroup)
            return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Start the program and supervise it."""
    parent, specification, command = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
    environment = json.loads(os.environ.pop(ENVIRONMENT))
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        return
    # No signal may come between the fork and the handlers that kill what was forked.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        _run(specification, command, environment)
    code = _supervise(child, specification["cgroup"])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
