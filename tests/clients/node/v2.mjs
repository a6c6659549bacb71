// node v2.mjs http|sse|stdio auto|legacy URL, with the key in MCPHUB_API_KEY: the official TypeScript SDK 2.x.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { capabilities, elicited, headers, info, report, sampled } from "./everything.mjs";

const [how, mode, where, ...rest] = process.argv.slice(2);
const openers = {
  http: () => new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } }),
  sse: () => new SSEClientTransport(new URL(where), { requestInit: { headers } }),
  stdio: () => new StdioClientTransport({ command: where, args: rest, env: process.env }),
};

const client = new Client(info, { capabilities, versionNegotiation: { mode } });
client.setRequestHandler("elicitation/create", elicited);
client.setRequestHandler("sampling/createMessage", sampled);

await report(
  client,
  openers[how](),
  () => client.getNegotiatedProtocolVersion(),
  (params, onprogress) => client.callTool(params, { onprogress }),
);
