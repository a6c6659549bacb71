"""The neighbour: a process that calls `echo` sequentially until its stdin is closed.

Prints, as JSON, the number of calls, the number of wrong responses, and the longest wait in seconds.
"""

import http.client
import json
import sys
import threading
import time

PAUSE_SECONDS = 0.01
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "echo",
            "arguments": {"message": "neighbour"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
)


def main(host: str, port: str, key: str) -> None:
    """Call until a line is written to stdin, or it is closed."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
    }
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    calls = wrong = 0
    longest = 0.0
    while not over.is_set():
        began = time.monotonic()
        try:
            connection.request("POST", "/mcp", BODY, headers)
            wrong += b"hello neighbour" not in connection.getresponse().read()
        except OSError:
            wrong += 1
            connection.close()
        longest = max(longest, time.monotonic() - began)
        calls += 1
        if calls == 1:
            write_line("begun")
        time.sleep(PAUSE_SECONDS)
    write_line(json.dumps({"calls": calls, "wrong": wrong, "longest": longest}))


def write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
