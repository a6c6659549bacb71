"""An upstream on stdio for tests. It never completes its first call, and elicits for it during the second."""

import json
import sys

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def send(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "late", "version": "1"},
                }
                send({"id": message["id"], "result": result})
            case "tools/list":
                send({"id": message["id"], "result": {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}})
            case "tools/call" if message["params"]["arguments"].get("answer"):
                params = {"message": "About the first call", "requestedSchema": FORM}
                send({"id": "late", "method": "elicitation/create", "params": params})
                send({"id": message["id"], "result": {"content": []}})
            case method if method and "id" in message:
                if method != "tools/call":
                    send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
