// node issuer.mjs PORT REDIRECT_URI HUB: a company's OpenID Connect provider by the npm package oidc-provider.
//
// Everybody can sign in under any name, and is in the group that the name begins with. The client "robot" gets signed
// access tokens for any resource. For the hub itself they are identity assertions, with what the header `x-claims` says.
// Other clients may register.

import { generateKeyPairSync } from "node:crypto";
import { Provider } from "oidc-provider";

const [port, redirectUri, hub] = process.argv.slice(2);
const url = `http://localhost:${port}`;
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const methods = { token_endpoint_auth_method: "client_secret_basic" };

const provider = new Provider(url, {
  clients: [
    {
      client_id: "hub",
      client_secret: "a secret of the hub",
      redirect_uris: [redirectUri],
      grant_types: ["authorization_code", "refresh_token"],
      ...methods,
    },
    {
      client_id: "robot",
      client_secret: "a secret of the robot",
      redirect_uris: [],
      response_types: [],
      grant_types: ["client_credentials"],
      ...methods,
    },
  ],
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", kid: "of-the-company" }] },
  cookies: { keys: ["only for this test"] },
  // As the package has it by default, these claims are in the answer of UserInfo, and not in ID tokens.
  claims: { openid: ["sub"], email: ["email"], profile: ["preferred_username", "groups"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      email: `${id}@acme.example`,
      preferred_username: id,
      groups: [id.split("-")[0]],
    }),
  }),
  issueRefreshToken: () => true,
  features: {
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: "mcp:read mcp:call",
        audience: resource,
        accessTokenFormat: "jwt",
        accessTokenTTL: 300,
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
  formats: {
    customizers: {
      jwt: (ctx, _, token) => {
        if (token.payload.aud !== hub) return;
        token.header = { typ: "oauth-id-jag+jwt" };
        Object.assign(token.payload, JSON.parse(ctx.get("x-claims")));
      },
    },
  },
});
provider.listen(Number(port), "localhost");
