// The form of a prompt: a row for each argument. Without this script, the form is complete: only the rows are missing.

import { button, h, pretty } from "../web/playground/dom.js";
import { argumentRows, descriptionInput } from "./argument_rows.js";
import { listed, parsedList } from "./typed_values.js";

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

const notation = {
  empty: [],
  fresh: {},

  problemOf(text, list) {
    if (text.trim() === "") return "";
    if (list === null) return "The JSON is invalid. Correct it to edit the arguments here.";
    if (!Array.isArray(list)) return "Enter a JSON list. The arguments can only be edited as JSON for now.";
    const names = list.map((argument) => (isObject(argument) ? argument.name : undefined));
    if (names.some((name) => typeof name !== "string")) return "Each argument must be an object with a name. Correct the JSON.";
    return new Set(names).size === names.length ? "" : "Two arguments have the same name. Correct the JSON.";
  },

  entries: (list) => list.map(({ name, required, ...property }) => ({ name, property, required: required === true })),

  written: (_, entries) => entries.map(({ name, property, required }) => (
    { name, ...property, ...(required ? { required } : {}) }
  )),
};

function inputs(entry, row) {
  const { values } = entry.property;
  const suggested = h("input", {
    type: "text", class: "pg-input", value: listed(values), placeholder: "a, b, c", autocomplete: "off", ...row.place("values"),
    onchange: () => {
      const [found, problem] = parsedList(suggested.value, "string");
      row.say(problem);
      if (!problem) row.alter(({ values: _, ...rest }) => (found.length ? { ...rest, values: found.map(String) } : rest));
    },
  });
  const plain = values === undefined || (Array.isArray(values) && values.every((value) => typeof value === "string"));
  return { plain, inputs: [row.labelled("Suggested values", suggested), descriptionInput(entry, row)] };
}

// Rename an argument in the texts of the messages. Returns how many placeholders changed, or null if the messages are no
// list that could be read.
function renamePlaceholders(messages, from, to) {
  let list;
  try {
    list = JSON.parse(messages.value);
  } catch {
    return null;
  }
  if (!Array.isArray(list)) return null;
  let count = 0;
  const changed = list.map((message) => {
    if (!isObject(message) || typeof message.text !== "string") return message;
    const pieces = message.text.split(`{${from}}`);
    count += pieces.length - 1;
    return { ...message, text: pieces.join(`{${to}}`) };
  });
  if (count) write(messages, pretty(changed));
  return count;
}

function write(textarea, text) {
  textarea.value = text;
  textarea.dispatchEvent(new Event("input", { bubbles: true }));
}

// What became of the messages when an argument was renamed, with a button that takes the whole back. It goes away as soon
// as something else is changed, because the button would undo that, too.
function renaming(textarea, messages) {
  const note = h("div", { class: "pg-actions", role: "status", hidden: true });
  let isRenaming = false;
  const hide = () => {
    if (!isRenaming) note.hidden = true;
  };
  for (const each of [textarea, messages]) each.addEventListener("input", hide);

  function renamed(from, to, before) {
    const written = messages.value;
    isRenaming = true;
    const count = renamePlaceholders(messages, from, to);
    isRenaming = false;
    const places = count === 1 ? "1 place" : `${count} places`;
    const undo = button("Undo", () => {
      write(messages, written);
      write(textarea, before);
    });
    if (count === null) note.replaceChildren(`The messages are invalid JSON: replace {${from}} by {${to}} there.`);
    else if (count) note.replaceChildren(`{${from}} is now {${to}} in ${places} of the messages.`, undo);
    note.hidden = count === 0;
  }

  return { note, renamed };
}

const textarea = document.getElementById("id_arguments");
const messages = document.getElementById("id_messages");
if (textarea && messages) {
  const { note, renamed } = renaming(textarea, messages);
  const rows = argumentRows(textarea, {
    title: "Arguments",
    help: "What users fill in. A message refers to an argument as {name}.",
    label: "As JSON",
    notation,
    inputs,
    renamed,
  });
  rows.note(note);
}
