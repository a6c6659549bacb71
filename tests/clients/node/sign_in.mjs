// node sign_in.mjs v1|v2 URL [DOCUMENT]: a client of the official TypeScript SDK that knows nothing but the URL.
//
// It prints a line of JSON for each thing that it does, and reads a line before it goes on: where the browser came back
// to, after `{"open": …}`, or else an order: "token" to print the access token, anything else to look at the hub again.

import { createInterface } from "node:readline";

const [sdk, url, clientMetadataUrl] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
  sdk === "v2"
    ? await import("@modelcontextprotocol/client")
    : {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
        ...(await import("@modelcontextprotocol/sdk/client/auth.js")),
      };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (value) => console.log(JSON.stringify(value));
const redirect = "http://localhost:33418/callback";
const kept = {};
const provider = {
  redirectUrl: redirect,
  clientMetadataUrl,
  clientMetadata: {
    client_name: `TypeScript ${sdk}`,
    redirect_uris: [redirect],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  redirectToAuthorization: (address) => say({ open: String(address) }),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  invalidateCredentials: () => void (kept.tokens = undefined),
};

const look = async () => {
  const client = new Client({ name: "sign-in", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  try {
    await client.connect(transport);
    const { tools } = await client.listTools();
    const result = await client.callTool({ name: "echo", arguments: { message: "world" } });
    say({ tools: tools.map((tool) => tool.name), text: result.content[0].text });
  } catch (problem) {
    if (!(problem instanceof UnauthorizedError)) throw problem;
    const came = new URL((await lines.next()).value).searchParams;
    await transport.finishAuth(...(sdk === "v2" ? [came] : [came.get("code")]));
    await client.close();
    return look();
  }
  await client.close();
};

await look();
for (let order; !(order = await lines.next()).done; ) {
  if (order.value === "token") say({ token: kept.tokens.access_token });
  else await look();
}
