// The form of an HTTP tool: a pasted request, placeholders that become arguments, secrets, and a trial before saving.
// Without this script, the form is complete: only these aids are missing.

import { newId } from "../web/playground/dom.js";
import { pasteField } from "./paste.js";
import { namesUsed, syncArguments } from "./placeholders.js";
import { schemaEditor } from "./schema_editor.js";
import { secretPickers } from "./secrets.js";
import { trial } from "./trial.js";

const start = JSON.parse(document.getElementById("tool-builder")?.textContent ?? "null");

function field(name) {
  return document.getElementById(`id_${name}`);
}

// Set a field as if the user had typed it, so that everything that listens follows.
function fill(name, value) {
  const input = field(name);
  if (!input) return;
  if (input.type === "checkbox") input.checked = Boolean(value);
  else input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

function goToFirstError(form) {
  const faulty = form.querySelector('[aria-invalid="true"]');
  if (!faulty) return;
  const folded = faulty.closest("details");
  if (folded) folded.open = true;
  faulty.scrollIntoView({ block: "center" });
  faulty.focus({ preventScroll: true });
}

// Show the errors of a trial at their fields. An error disappears when its field changes.
function showErrors(form, errors) {
  for (const old of form.querySelectorAll("[data-tb-error]")) old.remove();
  for (const input of form.querySelectorAll("[data-tb-invalid]")) {
    input.removeAttribute("aria-invalid");
    delete input.dataset.tbInvalid;
  }
  for (const [name, texts] of Object.entries(errors)) {
    const input = field(name);
    if (!input) continue;
    const shown = document.createElement("p");
    shown.className = "pg-fault";
    shown.dataset.tbError = name;
    shown.id = newId("tb-error");
    shown.textContent = texts.join(" ");
    input.closest(".tb-schema, .grow, div").append(shown);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", `${input.getAttribute("aria-describedby") ?? ""} ${shown.id}`.trim());
    input.dataset.tbInvalid = "1";
    input.addEventListener("input", () => {
      shown.remove();
      input.removeAttribute("aria-invalid");
      delete input.dataset.tbInvalid;
    }, { once: true });
  }
  goToFirstError(form);
}

function toggleBody() {
  // A body that must be emptied stays visible.
  const row = field("body").closest(".field-body, .form-row, .field-row");
  if (row) row.hidden = field("body_mode").value !== "template" && field("body").value.trim() === "";
}

function build(form) {
  const tenant = () => field("tenant")?.value || start.tenant;
  const token = () => form.querySelector("[name=csrfmiddlewaretoken]").value;
  const post = async (url, values) => {
    const body = values instanceof FormData ? values : new FormData();
    if (!(values instanceof FormData)) for (const [name, value] of Object.entries(values)) body.set(name, value);
    body.set("csrfmiddlewaretoken", token());
    const response = await fetch(url, { method: "POST", body });
    if (response.redirected) throw new Error("Your login has expired. Log in again in a new tab.");
    if (response.status === 403) throw new Error("Only admins of the tenant can do this.");
    if (response.status === 404) throw new Error("Choose a tenant first.");
    return response.json().catch(() => {
      throw new Error("The hub rejected the request. It may be too large: shorten it and try again.");
    });
  };
  const hub = { start, tenant, post, field, fill, form };

  const editor = schemaEditor(field("input_schema"), {
    title: "Arguments", help: "Placeholders such as {id} in the request become arguments by themselves.",
  });
  const request = ["path", "query", "headers", "body_mode", "body"].map(field);
  const follow = syncArguments(editor, () => namesUsed(hub));
  for (const input of request) input.addEventListener("input", follow);
  for (const input of request) input.addEventListener("change", follow);
  field("body_mode").addEventListener("change", toggleBody);
  toggleBody();

  const secrets = secretPickers(hub, ["query", "headers", "body"]);
  if (start.isNew) pasteField(hub, { editor, secrets, follow });
  const tryCard = document.getElementById("tb-try");
  const schemaSet = field("input_schema").closest("fieldset");
  schemaSet.after(tryCard);
  tryCard.hidden = false;
  trial(hub, { editor, showErrors: (errors) => showErrors(form, errors) });
  if (start.isNew) follow();
  if (form.querySelector('[aria-invalid="true"]')) goToFirstError(form);
  else if (start.isNew) document.getElementById("tb-paste-text").focus({ preventScroll: true });
}

const form = document.getElementById("tool_form");
if (start && form && field("input_schema")) build(form);
