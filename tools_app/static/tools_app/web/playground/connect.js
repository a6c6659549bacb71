// Instructions for connecting: one client at a time, with the pasted key, and a connection test.

import { PassHolder } from "./admin.js";
import { McpClient } from "./client.js";
import { h } from "./dom.js";
import { explained } from "./explain.js";

// Characters that need no quoting in a shell, JSON or TOML (RFC 6750, §2.1).
const TOKEN = /^[A-Za-z0-9._~+/=-]+$/;
const MODERN = "2026-07-28";
const LATEST_HANDSHAKE = "2025-11-25";

for (const box of document.querySelectorAll("[data-snippets]")) tabbed(box);
const startText = document.getElementById("connect-start");
if (startText) begin(JSON.parse(startText.textContent));

// --- Snippets -----------------------------------------------------------------------------------------------------

function tabbed(box) {
  const sections = [...box.querySelectorAll("[data-snippet]")];
  const clients = Map.groupBy(sections, (section) => section.dataset.snippet.replace(/-(project|key)$/, ""));
  const bar = box.querySelector("[data-tabs]");
  const show = (client) => {
    for (const [name, group] of clients) for (const section of group) section.hidden = name !== client;
    for (const tab of bar.children) tab.setAttribute("aria-pressed", String(tab.dataset.client === client));
  };
  for (const [client, [first]] of clients) {
    const label = first.querySelector("h2").textContent;
    bar.append(h("button", {
      type: "button", class: "pg-button pg-tab", "data-client": client, onclick: () => show(client),
    }, label));
  }
  bar.hidden = false;
  show(clients.keys().next().value);
}

// Replace the current key or placeholder by another key, or by the placeholder.
function filler(box, placeholder) {
  const texts = [...box.querySelectorAll("[data-has-key]")].map((element) => ({ element, text: element.textContent }));
  const link = box.querySelector("[data-cursor-link]");
  return (key) => {
    for (const { element, text } of texts) element.textContent = text.replaceAll(placeholder, () => key || placeholder);
    const cursor = JSON.parse(box.querySelector("[data-snippet=cursor] pre").textContent);
    const [[name, server]] = Object.entries(cursor.mcpServers);
    const query = new URLSearchParams({ name, config: btoa(JSON.stringify(server)) });
    link.href = `cursor://anysphere.cursor-deeplink/mcp/install?${query}`;
  };
}

// --- The page -----------------------------------------------------------------------------------------------------

function begin(start) {
  const field = document.getElementById("pg-key");
  const fault = document.getElementById("pg-key-fault");
  const fill = filler(document.querySelector("[data-snippets]"), start.placeholder);
  const key = () => field.value.trim();
  field.addEventListener("input", () => {
    const isGood = key() === "" || TOKEN.test(key());
    fault.textContent = isGood ? "" : "Invalid API key: it can contain only letters, digits and . _ ~ + / = -";
    fault.hidden = isGood;
    fill(isGood ? key() : "");
  });
  const pass = start.passUrl ? new PassHolder(start.passUrl, start.key) : null;
  const button = document.getElementById("pg-test");
  button.addEventListener("click", async () => {
    const place = document.getElementById("pg-tested");
    if (!key() && !pass) {
      place.replaceChildren(note("bad", "Paste the API key first."));
      return;
    }
    button.disabled = true;
    place.replaceChildren(h("p", {}, "Testing…"));
    const credential = key() ? () => key() : () => pass.credential();
    const rows = [];
    for (const version of [MODERN, LATEST_HANDSHAKE]) rows.push(await tested(start, version, credential));
    const how = key() ? "With the pasted key:" : "With a temporary credential for this key. Paste the key to test the key itself:";
    place.replaceChildren(h("p", { class: "pg-hint" }, how), ...rows);
    button.disabled = false;
  });
}

// Open a connection, list the tools and close; show the result, or the error and how to fix it.
async function tested(start, version, credential) {
  const url = new URL(start.url, location.origin).href;
  const client = new McpClient({ url, version, modern: version === MODERN, credential });
  const began = performance.now();
  try {
    await client.open();
    const tools = await client.list("tools/list", "tools");
    const took = Math.round(performance.now() - began);
    const count = `${tools.length} ${tools.length === 1 ? "tool" : "tools"}`;
    return note("good", `Protocol version ${client.version}: connected, ${count}, ${took} ms.`);
  } catch (problem) {
    const { title, help } = explained(problem);
    const web = problem.status ? ` (HTTP ${problem.status})` : "";
    return note("bad", `Protocol version ${version}: ${title}${web} ${help}`);
  } finally {
    await client.close();
  }
}

const note = (look, words) => h("p", { class: `pg-${look}` }, words);
