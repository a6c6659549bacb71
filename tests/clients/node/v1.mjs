// node v1.mjs http|sse|ws|stdio URL, with the key in MCPHUB_API_KEY: the official TypeScript SDK 1.x.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { CreateMessageRequestSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { capabilities, elicited, headers, info, key, report, sampled } from "./everything.mjs";

const [how, where, ...rest] = process.argv.slice(2);
const openers = {
  http: () => new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } }),
  sse: () => new SSEClientTransport(new URL(where), { requestInit: { headers } }),
  // This client sends no headers.
  ws: () => new WebSocketClientTransport(new URL(`${where}?api_key=${key}`)),
  stdio: () => new StdioClientTransport({ command: where, args: rest, env: process.env }),
};

const client = new Client(info, { capabilities });
client.setRequestHandler(ElicitRequestSchema, elicited);
client.setRequestHandler(CreateMessageRequestSchema, sampled);

const transport = openers[how]();
let version = "";
transport.setProtocolVersion = ((set) => (agreed) => {
  version = agreed;
  set?.call(transport, agreed);
})(transport.setProtocolVersion);

await report(
  client,
  transport,
  () => version,
  (params, onprogress) => client.callTool(params, undefined, { onprogress }),
);
