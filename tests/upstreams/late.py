"""An upstream on stdio for tests: it never ends its first call, and asks about it when it gets the second."""

import json
import sys

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def say(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                said = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "late", "version": "1"},
                }
                say({"id": message["id"], "result": said})
            case "tools/list":
                say({"id": message["id"], "result": {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}})
            case "tools/call" if message["params"]["arguments"].get("answer"):
                params = {"message": "About the first call", "requestedSchema": FORM}
                say({"id": "late", "method": "elicitation/create", "params": params})
                say({"id": message["id"], "result": {"content": []}})
            case method if method and "id" in message:
                if method != "tools/call":
                    say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
