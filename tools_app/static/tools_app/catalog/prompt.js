// The form of a prompt: a row for each argument. Without this script, the form is complete: only the rows are missing.

import { h } from "../playground/dom.js";
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

const textarea = document.getElementById("id_arguments");
if (textarea) {
  argumentRows(textarea, {
    title: "Arguments",
    help: "What users fill in. A message refers to an argument as {name}.",
    label: "As JSON",
    notation,
    inputs,
  });
}
