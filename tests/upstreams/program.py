"""An upstream on stdio for tests. Its tools report what the sandbox allows."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path


def try_open(path: str, mode: str = "r") -> str:
    try:
        with Path(path).open(mode) as file:
            return "read" if mode == "r" and file.read(1) is not None else "written"
    except OSError as problem:
        return type(problem).__name__


def try_socket(make: str, *kind: int) -> str:
    try:
        opened = getattr(socket, make)(*kind)
    except OSError as problem:
        return type(problem).__name__
    for one in opened if isinstance(opened, tuple) else [opened]:
        one.close()
    return "opened"


SOCKETS = {
    "unix": ("socket", socket.AF_UNIX),
    "unix datagrams": ("socket", socket.AF_UNIX, socket.SOCK_DGRAM),
    "tcp": ("socket", socket.AF_INET),
    "multipath tcp": ("socket", socket.AF_INET, socket.SOCK_STREAM, 262),
    "udp": ("socket", socket.AF_INET, socket.SOCK_DGRAM),
    "udp over ipv6": ("socket", socket.AF_INET6, socket.SOCK_DGRAM),
    "pair of datagrams": ("socketpair", socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK),
    "pair of raw sockets": ("socketpair", socket.AF_UNIX, socket.SOCK_RAW),
    "pair": ("socketpair", socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC),
    "addresses of the host": ("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0),
}


def store(count: int, delete: bool) -> None:
    """Store bytes and keep their file open: it takes the space also once it is deleted."""
    path = Path(os.environ["HOME"], "stored")
    with path.open("wb") as file:
        file.write(b"x" * count)
        file.flush()
        if delete:
            path.unlink()
        time.sleep(60)


def try_connect(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError as problem:
        return type(problem).__name__
    return "connected"


ATTEMPTS = {"read": try_open, "write": lambda path: try_open(path, "w"), "connect": try_connect}


def ask() -> dict:
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": "Who?", "requestedSchema": form}
    request = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}
    sys.stdout.write(json.dumps(request) + "\n")
    sys.stdout.flush()
    reply = json.loads(sys.stdin.readline())
    return {"text": reply["result"]["content"]["name"] if "result" in reply else reply["error"]["message"]}


def call(name: str, arguments: dict) -> dict:
    match name:
        case "environment":
            return dict(os.environ)
        case "read" | "write" | "connect":
            return {"text": ATTEMPTS[name](**arguments)}
        case "sockets":
            return {name: try_socket(*kind) for name, kind in SOCKETS.items()}
        case "store":
            store(arguments["bytes"], arguments["delete"])
        case "spawn":
            # A process that leaves the session, as a daemon does.
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
            return {"pid": child.pid, "own": os.getpid()}
        case "die":
            sys.stderr.write("out of paper\n")
            sys.stderr.flush()
            os._exit(3)
        case "hang":
            Path(os.environ["HOME"], "hangs").touch()
            time.sleep(60)
        case "flood":
            sys.stdout.write("x" * 40_000_000)
        case "babble":
            sys.stdout.write("Starting up...\n")
    return {"text": name}


TOOLS = (
    "ask",
    "environment",
    "read",
    "write",
    "connect",
    "sockets",
    "store",
    "spawn",
    "die",
    "hang",
    "flood",
    "babble",
)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        result = None
        match message["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "program", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
            case "tools/call":
                name = message["params"]["name"]
                structured = ask() if name == "ask" else call(name, message["params"]["arguments"])
                result = {"content": [], "structuredContent": structured}
        if "id" in message:
            outcome = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
