// An MCP client for the browser, for both protocol eras, over Streamable HTTP. Independent of the page.
//
// `wire(entry)` receives each message: {kind, title, status, headers, body, ms}, without the credential. A request's
// `hears` holds its listeners and options: {signal, progress, log, ask, sent, task, mirrored, trace, asTask}.

import { randomHex } from "./dom.js";
import { events } from "./sse.js";

const META = "io.modelcontextprotocol/";
const TASKS = `${META}tasks`;
const NAMED_BY = {
  "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
  "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
};
const CLIENT = { name: "playground", version: "1" };
const MOST_RETURNS = 60;

export class McpError extends Error {
  constructor(message, { code, data, status, retryAfter } = {}) {
    super(message);
    Object.assign(this, { code, data, status, retryAfter });
  }
}

export class McpClient {
  // `credential()` returns the credential after "Bearer", or a promise of it.
  constructor({ url, version, modern, credential, wire = () => {} }) {
    Object.assign(this, { url, version, modern, credential, wire, session: null, opened: null, server: null });
  }

  // Discover the server or initialize a session. Sets `version` and `server` to what was negotiated.
  async open() {
    if (this.modern) {
      const found = await this.request("server/discover");
      this.server = found._meta?.[`${META}serverInfo`] ?? {};
      return found;
    }
    const params = { protocolVersion: this.version, capabilities: this.#capabilities(), clientInfo: CLIENT };
    const answer = await this.request("initialize", params);
    this.version = answer.protocolVersion;
    this.server = answer.serverInfo;
    await this.notify("notifications/initialized");
    if (answer.capabilities.logging) await this.request("logging/setLevel", { level: "debug" });
    return answer;
  }

  // All entries of a list, across its pages.
  async list(method, field) {
    const all = [];
    let cursor;
    do {
      const page = await this.request(method, cursor ? { cursor } : {});
      all.push(...page[field]);
      cursor = page.nextCursor;
    } while (cursor);
    return all;
  }

  // A request until its final result: answers input requests by retrying with the responses (modern era), and waits
  // for the result of a task.
  async run(method, params, hears) {
    const wish = hears.asTask && !this.modern ? { task: {} } : {};
    let round = {};
    for (;;) {
      const result = await this.request(method, { ...params, ...wish, ...round }, hears);
      if (result.resultType === "task") return this.#polled(result, hears);
      if (result.task) return this.#awaited(result.task, hears);
      if (result.resultType !== "input_required") return result;
      round = { inputResponses: await this.#answers(result.inputRequests ?? {}, hears) };
      if (result.requestState !== undefined) round.requestState = result.requestState;
    }
  }

  async #answers(questions, hears) {
    const named = Object.entries(questions);
    const answers = await Promise.all(named.map(([name, question]) => hears.ask(question, name)));
    hears.signal?.throwIfAborted();
    return Object.fromEntries(named.map(([name], at) => [name, answers[at]]));
  }

  // The result of a 2025-11-25 task: one request, whose stream carries the server's requests.
  #awaited(task, hears) {
    hears.task?.(task);
    return this.request("tasks/result", { taskId: task.taskId }, { ...hears, asTask: false });
  }

  // The result of a task of the extension, polled until it is available.
  async #polled(task, hears) {
    const { taskId } = task;
    const quietly = { signal: hears.signal, asTask: true };
    const answered = new Set();
    for (let state = task; ; ) {
      hears.task?.(state);
      await pause(state.pollIntervalMs ?? 500, hears.signal);
      state = await this.request("tasks/get", { taskId }, quietly);
      if (state.status === "completed") return state.result;
      if (state.status === "failed") throw new McpError(state.error?.message ?? "The task failed.", state.error);
      if (state.status === "cancelled") throw new DOMException("Cancelled", "AbortError");
      const open = Object.entries(state.inputRequests ?? {}).filter(([name]) => !answered.has(name));
      if (!open.length) continue;
      const inputResponses = await this.#answers(Object.fromEntries(open), hears);
      open.forEach(([name]) => answered.add(name));
      await this.request("tasks/update", { taskId, inputResponses }, quietly);
    }
  }

  cancelTask(taskId) {
    return this.request("tasks/cancel", { taskId }, { asTask: true });
  }

  // The result of one request. Throws McpError, or AbortError if `hears.signal` is aborted.
  async request(method, params = {}, hears = {}) {
    const id = `pg-${randomHex(6)}`;
    const body = { jsonrpc: "2.0", id, method, params: this.#withMeta(params, hears) };
    if (method === "initialize") body.params = params;
    hears.sent?.(id);
    const headers = { ...this.#routing(method, params), ...(hears.mirrored ?? {}) };
    if (hears.trace) headers.traceparent = `00-${hears.trace}-${randomHex(8)}-01`;
    const response = await this.#post(body, headers, hears.signal);
    if (method === "initialize") this.session = response.headers.get("mcp-session-id");
    return this.#answer(response, id, hears);
  }

  async notify(method, params = {}) {
    await this.#send({ jsonrpc: "2.0", method, params });
  }

  // Cancel a request by notification (handshake era; in the modern era the stream is closed instead).
  async cancel(id) {
    await this.notify("notifications/cancelled", { requestId: id, reason: "Cancelled in the playground." });
  }

  // End the session, also while the page unloads.
  async close() {
    if (!this.session) return;
    const session = this.session;
    this.session = null;
    try {
      const headers = { Authorization: `Bearer ${await this.credential()}`, "Mcp-Session-Id": session };
      await fetch(this.url, { method: "DELETE", headers, keepalive: true });
    } catch {
      // An unused session expires.
    }
  }

  #capabilities(hears) {
    const forms = this.version >= "2025-11-25" ? { form: {}, url: {} } : {};
    const declared = { elicitation: forms, sampling: {}, roots: {} };
    return this.modern && hears?.asTask ? { ...declared, extensions: { [TASKS]: {} } } : declared;
  }

  #withMeta(params, hears) {
    const meta = {};
    if (hears.progress) meta.progressToken = randomHex(6);
    if (this.modern) {
      meta[`${META}protocolVersion`] = this.version;
      meta[`${META}clientInfo`] = CLIENT;
      meta[`${META}clientCapabilities`] = this.#capabilities(hears);
      if (hears.log) meta[`${META}logLevel`] = "debug";
    }
    return Object.keys(meta).length ? { ...params, _meta: meta } : params;
  }

  #routing(method, params) {
    if (!this.modern) return {};
    const headers = { "Mcp-Method": method };
    if (NAMED_BY[method]) headers["Mcp-Name"] = headerValue(String(params[NAMED_BY[method]]));
    return headers;
  }

  // A message without a response: a notification or a response.
  async #send(message) {
    const response = await this.#post(message, {});
    if (!response.ok) throw failure(response, await this.#body(response));
    this.wire({ kind: "response", title: "accepted", status: response.status, headers: shown(response.headers) });
  }

  async #post(body, more, signal) {
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream", ...more };
    if (this.session) headers["Mcp-Session-Id"] = this.session;
    if (this.modern || (this.session && this.version >= "2025-06-18")) headers["MCP-Protocol-Version"] = this.version;
    this.wire({ kind: "request", title: body.method ?? "response", headers: { POST: this.url, ...headers }, body });
    return this.#fetch({ method: "POST", headers, body: JSON.stringify(body), signal });
  }

  async #fetch(request) {
    const credential = await this.credential();
    const headers = { ...request.headers, Authorization: `Bearer ${credential}` };
    try {
      return await fetch(this.url, { ...request, headers, credentials: "omit", cache: "no-store" });
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new McpError(`The hub cannot be reached: ${problem.message}`, { status: 0 });
    }
  }

  async #body(response) {
    const text = await response.text();
    let body = text;
    try {
      body = JSON.parse(text);
    } catch {
      // Not from the hub, such as a proxy's error page.
    }
    this.wire({ kind: "response", title: "", status: response.status, headers: shown(response.headers), body });
    return body;
  }

  async #answer(response, id, hears) {
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    if (!isStream) {
      const body = await this.#body(response);
      if (body?.error) throw failure(response, body);
      if (body?.result === undefined) throw failure(response, body);
      return body.result;
    }
    this.wire({ kind: "response", title: "event stream", status: response.status, headers: shown(response.headers) });
    return this.#streamed(response, id, hears);
  }

  // The result from a stream, resumed if the hub closes it before the result (2025-11-25).
  async #streamed(response, id, hears) {
    let last = null;
    let delay = 500;
    for (let returns = 0; returns <= MOST_RETURNS; returns++) {
      for await (const event of events(response)) {
        if (event.id !== undefined) last = event.id;
        if (event.retry) delay = event.retry;
        if (!event.data) continue;
        const message = JSON.parse(event.data);
        this.wire({ kind: "event", title: message.method ?? "result", body: message, id: event.id });
        if (message.id === id && !message.method) {
          if (message.error) throw failure(response, message);
          return message.result;
        }
        this.#receive(message, hears);
      }
      hears.signal?.throwIfAborted();
      if (last === null || this.modern) break;
      await pause(delay, hears.signal);
      response = await this.#resume(last, hears.signal);
      if (!response.ok) throw failure(response, await this.#body(response));
      this.wire({ kind: "response", title: "event stream", status: response.status, headers: shown(response.headers) });
    }
    throw new McpError("The stream ended before the response. See the outcome of the call in the audit log.");
  }

  #resume(last, signal) {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": last, "Mcp-Session-Id": this.session };
    if (this.version >= "2025-06-18") headers["MCP-Protocol-Version"] = this.version;
    this.wire({ kind: "request", title: "reconnecting for the rest", headers: { GET: this.url, ...headers } });
    return this.#fetch({ method: "GET", headers, signal });
  }

  #receive(message, hears) {
    if (message.method === "notifications/progress") hears.progress?.(message.params);
    else if (message.method === "notifications/message") hears.log?.(message.params);
    else if (message.method && message.id !== undefined) this.#respond(message, hears);
  }

  async #respond(message, hears) {
    let answer;
    try {
      if (message.method === "ping") answer = { result: {} };
      else if (!hears.ask) answer = { error: { code: -32601, message: "No user is available to answer." } };
      else answer = { result: await hears.ask({ method: message.method, params: message.params }, message.method) };
    } catch (problem) {
      // A cancelled call sends no more responses.
      if (problem.name === "AbortError") return;
      answer = { error: { code: problem.code ?? -1, message: problem.message } };
    }
    try {
      await this.#send({ jsonrpc: "2.0", id: message.id, ...answer });
    } catch {
      // The wire panel shows the failure, and the call reports how it ends.
    }
  }
}

async function pause(milliseconds, signal) {
  await new Promise((done) => setTimeout(done, milliseconds));
  signal?.throwIfAborted();
}

// Encode a header value (2026-07-28, Streamable HTTP, §Value Encoding).
export function headerValue(text) {
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(String.fromCharCode(...bytes))}?=`;
}

// The headers that mirror arguments (2026-07-28, Streamable HTTP, §Custom Headers from Tool Parameters).
export function mirroredHeaders(schema, value) {
  const headers = {};
  for (const [name, inner] of Object.entries(schema?.properties ?? {})) {
    const given = value?.[name];
    if (given === undefined || given === null) continue;
    if (inner["x-mcp-header"]) headers[`Mcp-Param-${inner["x-mcp-header"]}`] = headerValue(String(given));
    if (typeof given === "object") Object.assign(headers, mirroredHeaders(inner, given));
  }
  return headers;
}

function shown(headers) {
  return Object.fromEntries(headers.entries());
}

function failure(response, body) {
  const retryAfter = Number(response.headers.get("retry-after")) || undefined;
  const error = body?.error ?? {};
  const message = error.message ?? `The response is not valid MCP (HTTP ${response.status}).`;
  return new McpError(message, { code: error.code, data: error.data, status: response.status, retryAfter });
}
