// A trial of the tool in the form: arguments from its schema, the request that is sent, and the response.

import { h } from "../web/playground/dom.js";
import { schemaForm } from "../web/playground/schema_form.js";

const PAUSE_MS = 300;
const SENT = [
  "name", "method", "base_url", "path", "query", "headers", "body_mode", "body", "input_schema", "max_response_bytes",
  "timeout_seconds", "output_schema", "result_mask", "result_items", "result_bytes",
];

export function trial(hub, { editor, showErrors }) {
  const place = document.getElementById("tb-try-form");
  const run = document.getElementById("tb-try-run");
  const status = document.getElementById("tb-try-status");
  const result = document.getElementById("tb-try-result");
  let form = null;
  let shape = "";
  let waiting = 0;

  function draw() {
    const schema = editor.value();
    const text = JSON.stringify(schema);
    if (!schema || typeof schema !== "object" || text === shape) return;
    shape = text;
    const before = form?.get();
    form = schemaForm(schema, () => {});
    if (before !== undefined) form.set(before);
    place.replaceChildren(form.element);
  }

  // Placeholders of the schema editor and typed JSON both end up in the textarea.
  editor.onchange((event) => {
    clearTimeout(waiting);
    // Only typed JSON may be incomplete.
    if (event.detail === "rows") draw();
    else waiting = setTimeout(draw, PAUSE_MS);
  });
  draw();

  async function send() {
    draw();
    const values = new FormData();
    for (const name of SENT) values.set(name, hub.field(name)?.value ?? "");
    if (hub.field("follow_redirects").checked) values.set("follow_redirects", "on");
    values.set("tenant", hub.tenant());
    values.set("arguments", JSON.stringify(form?.get() ?? {}));
    run.disabled = true;
    status.textContent = "Sending…";
    result.replaceChildren();
    form?.clear();
    try {
      show(await hub.post(hub.start.trialUrl, values));
    } catch (problem) {
      status.textContent = "";
      result.replaceChildren(h("p", { class: "pg-fault" }, problem.message || "The hub did not answer. Try again."));
    } finally {
      run.disabled = false;
    }
  }

  function show(answer) {
    status.textContent = "";
    showErrors(answer.errors ?? {});
    if (answer.errors) {
      status.textContent = "Not sent. Correct the fields that are marked.";
      const loose = Object.entries(answer.errors).filter(([name]) => !hub.field(name)).flatMap(([, texts]) => texts);
      result.replaceChildren(...loose.map((text) => h("p", { class: "pg-fault" }, text)));
    } else if (answer.faults) {
      status.textContent = "Not sent. Correct the arguments.";
      for (const { field, message } of answer.faults) form.fault(field ? field.split(".") : [], message);
      place.querySelector('[aria-invalid="true"]')?.focus();
    } else {
      const parts = [answer.problem ? problemLine(answer.problem) : null];
      if (answer.request) parts.push(requestPart(answer.request));
      if (answer.reply) parts.push(replyPart(answer.reply, answer.seconds));
      if (answer.shaped) parts.push(shapedPart(answer.shaped));
      result.replaceChildren(...parts.filter(Boolean));
    }
  }

  function problemLine(problem) {
    const line = h("p", { class: "pg-fault" }, problem);
    if (problem.includes("Allowed networks") && hub.start.networksUrl) {
      const href = hub.start.networksUrl.replace("TENANT", hub.tenant());
      line.append(" ", h("a", { class: "underline", href, target: "_blank", rel: "noopener" }, "Open it in a new tab"));
    }
    return line;
  }

  run.addEventListener("click", send);
}

const lines = (headers) => headers.map(([name, value]) => `${name}: ${value}`).join("\n");
const block = (label, text) => h("pre", { class: "pg-text", tabindex: "0", "aria-label": label }, text);

function requestPart({ method, url, headers, body }) {
  return h("details", { class: "tb-part", open: true },
    h("summary", {}, "Request"),
    block("Request", `${method} ${url}\n${lines(headers)}${body === null ? "" : `\n\n${indented(body)}`}`));
}

function replyPart(reply, seconds) {
  const state = reply.success ? "pg-good" : "pg-bad";
  return h("div", { class: "tb-part" },
    h("p", { class: state },
      `HTTP ${reply.status} after ${seconds.toFixed(2)} s, ${reply.size} bytes.`,
      reply.success ? "" : " A call would return this as a tool error."),
    h("details", {}, h("summary", {}, "Response headers"), block("Response headers", lines(reply.headers))),
    block("Response body", reply.body || "(empty)"));
}

function shapedPart({ whole_bytes, whole_tokens, bytes, tokens, result, problem }) {
  return h("div", { class: "tb-part" },
    h("p", { class: problem ? "pg-bad" : "pg-good" },
      `A client receives ${bytes} of ${whole_bytes} bytes, about ${tokens} of ${whole_tokens} tokens.`,
      problem ? ` The field mask was not applied: ${problem}` : ""),
    h("details", {}, h("summary", {}, "Shaped result"), block("Shaped result", result)));
}

function indented(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
