// The playground: the current selection, running calls, and where results are shown.

import { PassHolder, recordsOf } from "./admin.js";
import { McpClient, mirroredHeaders } from "./client.js";
import { showCode } from "./code_panel.js";
import { button, h, pretty, randomHex } from "./dom.js";
import { explained, fieldsIn } from "./explain.js";
import { badges, KINDS, nameOf } from "./kinds.js";
import { ask } from "./questions.js";
import { rendered } from "./results.js";
import { schemaForm } from "./schema_form.js";
import { WirePanel } from "./wire_panel.js";

const start = JSON.parse(document.getElementById("playground-start").textContent);
const at = (id) => document.getElementById(`pg-${id}`);
// Allowance for clock skew between browser and hub.
const CLOCKS_DIFFER_MS = 30 * 60_000;
const MOST_LOGS = 500;

const wire = new WirePanel(at("wire"), at("wire-count"));
const drafts = new Map();
let client = null;
let pass = null;
let kind = "tools";
let entries = [];
let chosen = null;
let form = null;
let running = null;
let connecting = 0;

// --- Connecting ---------------------------------------------------------------------------------------------------

async function connect() {
  const turn = ++connecting;
  cancel();
  const before = client;
  const key = start.keys.find(({ id }) => id === at("key").value);
  // The previous key's session is ended with its own impersonation token, which is then discarded.
  const over = pass?.key === key.id ? null : pass;
  if (pass?.key !== key.id) pass = new PassHolder(start.passUrl, key.id);
  const version = at("version").value;
  const holder = pass;
  client = new McpClient({
    url: new URL(`/t/${key.slug}/mcp`, location.origin).href, version, modern: start.modern.includes(version),
    credential: () => holder.credential(), wire: (entry) => mine === client && wire.add(entry),
  });
  const mine = client;
  status("Connecting…");
  wire.clear();
  await before?.close();
  over?.drop();
  try {
    await mine.open();
    if (turn !== connecting) return mine.close();
    status(`Connected to ${mine.server?.name ?? "the hub"} as ${key.name}, protocol version ${mine.version}.`, "good");
    await list();
  } catch (problem) {
    if (turn === connecting) failed(problem);
  }
}

async function list() {
  const { list: method, field } = KINDS[kind];
  const turn = connecting;
  const found = await client.list(method, field);
  if (turn !== connecting) return;
  entries = found;
  const wanted = chosen && entries.find((entry) => nameOf(entry) === nameOf(chosen));
  const first = kind === "tools" && start.tool ? entries.find(({ name }) => name === start.tool) : null;
  draw();
  if (kind === "tools" && start.tool && !first) {
    status(`The key cannot use the tool ${start.tool}: it is disabled, or outside the key's scope.`, "bad");
  }
  if (first && start.arguments) drafts.set(`tools ${start.tool}`, pretty(start.arguments));
  start.tool = "";
  choose(first ?? wanted ?? entries[0] ?? null);
}

function status(words, look = "") {
  at("status").textContent = words;
  at("status").className = look ? `pg-${look}` : "";
}

function failed(problem) {
  if (problem.name === "AbortError") return;
  const { title, help } = explained(problem);
  status([title, help].filter(Boolean).join(" "), "bad");
}

// --- Selection ----------------------------------------------------------------------------------------------------

function draw() {
  const wanted = at("filter").value.trim().toLowerCase();
  const fits = (entry) => `${nameOf(entry)} ${entry.title ?? ""}`.toLowerCase().includes(wanted);
  const shown = entries.filter(fits);
  at("entries").replaceChildren(...shown.map((entry) => h("button", {
    type: "button", class: "pg-entry", "data-name": nameOf(entry), onclick: () => choose(entry),
  },
  h("span", { class: "pg-mono" }, nameOf(entry)),
  entry.title ? h("span", { class: "pg-hint" }, entry.title) : null)));
  mark();
  at("none").hidden = shown.length > 0;
  at("none").textContent = entries.length
    ? `No ${kind} match “${at("filter").value.trim()}”.`
    : `The key cannot use any ${kind}. Enable some for its tenant, or extend the key's scope.`;
}

// Mark the selected entry and scroll it into view.
function mark() {
  for (const entry of at("entries").children) {
    const isChosen = chosen !== null && entry.dataset.name === nameOf(chosen);
    entry.setAttribute("aria-pressed", String(isChosen));
    const { offsetTop, offsetHeight } = entry;
    const list = at("entries");
    const isSeen = offsetTop >= list.scrollTop && offsetTop + offsetHeight <= list.scrollTop + list.clientHeight;
    if (isChosen && !isSeen) list.scrollTop = offsetTop;
  }
}

function choose(entry) {
  if (chosen && !running) remember();
  chosen = entry;
  mark();
  at("chosen").hidden = entry === null;
  if (entry === null) return;
  at("name").textContent = entry.title ?? nameOf(entry);
  at("description").textContent = entry.description ?? "";
  at("badges").replaceChildren(...badges(entry).map((words) => h("span", { class: "pg-badge" }, words)));
  form = schemaForm(KINDS[kind].schema(entry), fromForm);
  at("form").replaceChildren(form.element);
  const before = drafts.get(`${kind} ${nameOf(entry)}`);
  if (before !== undefined) {
    at("raw").value = before;
    fromRaw();
  } else fromForm();
  at("code").hidden = true;
  offerTask(entry);
  clearAnswer();
}

// In the modern era, the hub does not declare in advance which tools may return a task.
function offerTask({ execution }) {
  const support = client.modern ? "optional" : execution?.taskSupport ?? "forbidden";
  at("task-part").hidden = kind !== "tools" || support === "forbidden";
  at("task").checked = support === "required";
}

const remember = () => drafts.set(`${kind} ${nameOf(chosen)}`, at("raw").value);

function fromForm() {
  at("code").hidden = true;
  at("raw").value = pretty(form.get() ?? {});
  rawFault("");
}

function fromRaw() {
  at("code").hidden = true;
  try {
    form.set(JSON.parse(at("raw").value));
    form.clear();
    rawFault("");
  } catch (problem) {
    rawFault(`Invalid JSON: ${problem.message}`);
  }
}

// The arguments parsed from the JSON editor, or undefined while it is invalid.
function written() {
  try {
    return JSON.parse(at("raw").value || "{}");
  } catch (problem) {
    rawFault(`Correct the JSON first: ${problem.message}`);
    return undefined;
  }
}

const mirrored = (value) => (client.modern && kind === "tools" ? mirroredHeaders(chosen.inputSchema, value) : {});

function rawFault(words) {
  at("raw-fault").textContent = words;
  at("raw-fault").hidden = !words;
  at("raw").setAttribute("aria-invalid", String(Boolean(words)));
}

// --- Running ------------------------------------------------------------------------------------------------------

async function run() {
  const value = written();
  if (value === undefined) return;
  remember();
  clearAnswer();
  form.clear();
  const { method, params } = KINDS[kind];
  const turn = { controller: new AbortController(), id: null, trace: randomHex(16), client, key: pass.key, logs: 0 };
  const signal = turn.controller.signal;
  running = turn;
  lookRunning(true);
  const began = performance.now();
  const took = () => `${((performance.now() - began) / 1000).toFixed(2)} s`;
  try {
    const result = await client.run(method, params(chosen, value), {
      asTask: !at("task-part").hidden && at("task").checked,
      task: ({ taskId, status: stands }) => {
        turn.task = taskId;
        outcome(`Task: ${stands}`);
      },
      signal, trace: turn.trace, progress, log: (entry) => log(entry, turn),
      sent: (id) => (turn.id = id),
      ask: (question) => askUser(question, signal),
      mirrored: mirrored(value),
    });
    answered(result, took());
  } catch (problem) {
    if (problem.name === "AbortError") outcome(`Cancelled after ${took()}`, "warn");
    else refused(problem, took());
  } finally {
    if (running === turn) running = null;
    lookRunning(false);
    at("questions").replaceChildren();
  }
  await showRecords(turn);
}

async function askUser(question, signal) {
  outcome("Waiting for your answer", "warn");
  const answer = await ask(question, at("questions"), signal);
  outcome("Running…");
  return answer;
}

function cancel() {
  if (!running) return;
  const { controller, client: mine, id, task } = running;
  if (task) mine.cancelTask(task).catch(() => {});
  else if (!mine.modern && id) mine.cancel(id).catch(() => {});
  controller.abort();
}

function lookRunning(is) {
  at("run").disabled = is;
  at("cancel").disabled = !is;
  if (is) outcome("Running…");
}

function clearAnswer() {
  for (const id of ["result", "logs", "records", "questions", "faults"]) at(id).replaceChildren();
  at("progress-row").hidden = true;
  at("logs-part").hidden = true;
  outcome("");
}

function outcome(words, look = "") {
  at("outcome").textContent = words;
  at("outcome").className = look ? `pg-${look}` : "";
}

function progress({ progress: done, total, message }) {
  at("progress-row").hidden = false;
  const bar = at("progress");
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value");
  const reached = total ? `${done} of ${total}` : String(done);
  at("progress-words").textContent = [message, reached].filter(Boolean).join(" · ");
}

function log({ level, logger, data }, turn) {
  at("logs-part").hidden = false;
  const words = typeof data === "string" ? data : JSON.stringify(data);
  at("logs").append(h("li", {}, h("span", { class: "pg-badge" }, level), ` ${logger ? `${logger}: ` : ""}${words}`));
  if (++turn.logs > MOST_LOGS) at("logs").firstElementChild.remove();
}

function answered(result, took) {
  if (result.isError) outcome(`Tool error after ${took}`, "bad");
  else outcome(`Done in ${took}`, "good");
  at("result").replaceChildren(...rendered(result));
  faults(fieldsIn(result));
}

function refused(problem, took) {
  const { title, help, fields } = explained(problem);
  outcome(`Rejected after ${took}`, "bad");
  const code = problem.code === undefined ? "" : `Error ${problem.code}`;
  const web = problem.status ? `HTTP ${problem.status}` : "";
  at("faults").replaceChildren(h("div", { class: "pg-card pg-problem", role: "alert" },
    h("p", { class: "pg-bad" }, title), help ? h("p", {}, help) : null,
    h("p", { class: "pg-hint" }, [code, web].filter(Boolean).join(" · ")),
    problem.status === 404 || problem.status === 401 ? button("Reconnect", connect) : null));
  faults(fields);
}

function faults(fields) {
  for (const { field, message } of fields) form.fault(field ? field.split(".") : [], message);
}

async function showRecords({ trace, key }) {
  try {
    const found = await recordsOf(start.recordsUrl, key, trace, Date.now() - CLOCKS_DIFFER_MS);
    if (running) return;
    const links = found.map(({ url, says }, place) => h("a", { href: url, class: "text-link" },
      found.length > 1 ? `Record of round ${place + 1} (${says})` : `Record in the audit log (${says})`));
    at("records").replaceChildren(...links);
  } catch (problem) {
    at("records").replaceChildren(h("span", { class: "pg-hint" }, problem.message));
  }
}

// --- Code ---------------------------------------------------------------------------------------------------------

function asCode() {
  const value = written();
  if (value === undefined) return;
  const { method, params } = KINDS[kind];
  const request = { method, params: params(chosen, value), version: client.version, mirrored: mirrored(value) };
  showCode(at("code"), start.codeUrl, pass.key, request);
}

// --- Startup ------------------------------------------------------------------------------------------------------

function begin() {
  const tenants = Map.groupBy(start.keys, ({ tenant }) => tenant);
  for (const [tenant, keys] of tenants) {
    at("key").append(h("optgroup", { label: tenant }, keys.map(({ id, name }) => h("option", { value: id }, name))));
  }
  const wanted = start.keys.find(({ id }) => id === start.key) ?? start.keys.find(({ slug }) => slug === start.tenant);
  if (wanted) at("key").value = wanted.id;
  at("version").append(...start.versions.map((version) => h("option", { value: version }, version)));
  at("key").addEventListener("change", connect);
  at("version").addEventListener("change", connect);
  at("connect").addEventListener("click", connect);
  at("filter").addEventListener("input", draw);
  at("raw").addEventListener("input", fromRaw);
  at("run").addEventListener("click", run);
  at("cancel").addEventListener("click", cancel);
  at("as-code").addEventListener("click", asCode);
  at("wire-clear").addEventListener("click", () => wire.clear());
  at("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input") && !running) run();
  });
  for (const tab of document.querySelectorAll("[data-kind-tab]")) {
    tab.addEventListener("click", () => turnTo(tab));
  }
  addEventListener("pagehide", () => client?.close());
  if (start.keys.length) connect();
}

async function turnTo(tab) {
  if (chosen) remember();
  kind = tab.dataset.kindTab;
  chosen = null;
  entries = [];
  for (const other of document.querySelectorAll("[data-kind-tab]")) {
    other.setAttribute("aria-pressed", String(other === tab));
  }
  try {
    await list();
  } catch (problem) {
    failed(problem);
  }
}

begin();
