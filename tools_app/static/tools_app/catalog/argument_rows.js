// An editor of arguments: a row for each of them, in step with a textarea that holds them as JSON.
//
// The textarea is the only state. A row changes what it shows and keeps everything else, so that nothing is lost that
// rows cannot express. While the JSON is invalid or has another form, only the JSON can be edited.
//
// `notation` translates between the JSON and the rows' entries {name, property, required}; `was` is the name that an
// entry has in the JSON:
//   empty                       the value of an empty textarea
//   problemOf(text, value)      why rows cannot show the value; "" if they can
//   entries(value)              its arguments
//   written(value, entries)     the value with these arguments in place of its own
//   fresh                       the property of a new argument
// `renamed(from, to, before)`, if given, hears of an argument that was renamed in a row; `before` is the JSON as it was.
// `inputs(entry, row)` returns a row's own inputs, and whether they show all of its property, as {inputs, plain}. `row`
// has labelled(words, input, kind), place(part), say(words) and alter(change, redraw).

import { button, h, newId, pretty } from "../web/playground/dom.js";

const PAUSE_MS = 250;

export function argumentRows(textarea, { title, help, label, notation, inputs, renamed = () => {} }) {
  const rows = h("div", { class: "tb-rows" });
  const note = h("p", { class: "pg-hint", role: "status" });
  const add = button("Add an argument", () => {
    edit((entries) => {
      const name = free(entries.map((entry) => entry.name));
      return [...entries, { name, property: notation.fresh, required: false }];
    });
    rows.lastElementChild?.querySelector("input")?.select();
  });
  const left = h("div", { class: "tb-half", role: "group", "aria-label": title }, h("p", { class: "pg-hint" }, help), rows, note,
    h("div", { class: "pg-actions" }, add));
  const right = h("div", { class: "tb-half" }, h("label", { class: "pg-hint", for: textarea.id }, label));
  const whole = h("div", { class: "tb-schema" }, left, right);
  textarea.before(whole);
  right.append(textarea);
  textarea.classList.remove("max-w-2xl", "max-w-4xl");

  let waiting = 0;
  textarea.addEventListener("input", (event) => {
    if (event.detail === "rows") return;
    clearTimeout(waiting);
    waiting = setTimeout(draw, PAUSE_MS);
  });

  function read() {
    try {
      return JSON.parse(textarea.value);
    } catch {
      return null;
    }
  }

  const isEditable = () => notation.problemOf(textarea.value, read()) === "";

  function write(value, redraw = true) {
    textarea.value = pretty(value);
    textarea.dispatchEvent(new CustomEvent("input", { bubbles: true, detail: "rows" }));
    if (redraw) draw();
  }

  // Change the arguments: `change(entries)` returns the new ones. The JSON may have been typed since the rows were drawn.
  function edit(change, redraw = true) {
    if (!isEditable()) return;
    const value = read() ?? notation.empty;
    write(notation.written(value, change(notation.entries(value))), redraw);
  }

  function draw() {
    const value = read();
    const problem = notation.problemOf(textarea.value, value);
    note.textContent = problem;
    add.disabled = problem !== "";
    if (problem) {
      rows.replaceChildren();
      return;
    }
    const entries = notation.entries(value ?? notation.empty);
    note.textContent = entries.length ? "" : "No arguments.";
    const active = document.activeElement?.dataset?.tbPlace;
    rows.replaceChildren(...entries.map((entry, at) => row(entry, at, entries.length)));
    if (active) rows.querySelector(`[data-tb-place="${CSS.escape(active)}"]`)?.focus();
  }

  function alter(name, change, redraw = false) {
    edit((entries) => entries.map((entry) => (entry.name === name ? { ...entry, ...change(entry) } : entry)), redraw);
  }

  function reorder(name, by) {
    let to = 0;
    edit((entries) => {
      const moved = [...entries];
      const at = moved.findIndex((entry) => entry.name === name);
      const [entry] = moved.splice(at, 1);
      to = at + by;
      moved.splice(to, 0, entry);
      return moved;
    });
    rows.children[to]?.querySelector("input")?.focus();
  }

  function rename(name, wanted) {
    if (wanted === name) return "";
    if (!wanted) return "Enter a name.";
    const taken = notation.entries(read() ?? notation.empty).some((entry) => entry.name === wanted);
    if (taken) return "Another argument has this name.";
    const before = textarea.value;
    alter(name, () => ({ name: wanted }), true);
    renamed(name, wanted, before);
    return "";
  }

  function row(entry, at, many) {
    const { name } = entry;
    const fault = h("p", { class: "pg-fault", role: "alert", hidden: true });
    const say = (words) => {
      fault.textContent = words;
      fault.hidden = !words;
    };
    const place = (part) => ({ "data-tb-place": `${at}-${part}` });
    const labelled = (words, input, kind = "") => {
      input.id = newId("tb-property");
      return h("label", { class: `pg-field ${kind}`, for: input.id }, words, input);
    };
    const nameInput = h("input", {
      type: "text", class: "pg-input pg-mono", value: name, autocomplete: "off", ...place("name"),
      onchange: () => say(rename(name, nameInput.value.trim())),
    });
    const required = h("input", {
      type: "checkbox", ...place("required"), onchange: () => alter(name, () => ({ required: required.checked })),
    });
    required.checked = entry.required;
    required.id = newId("tb-property");
    const up = button("↑", () => reorder(name, -1));
    const down = button("↓", () => reorder(name, 1));
    up.setAttribute("aria-label", `Move ${name} up`);
    down.setAttribute("aria-label", `Move ${name} down`);
    up.disabled = at === 0;
    down.disabled = at === many - 1;
    const gone = button("Remove", () => {
      edit((entries) => entries.filter((other) => other.name !== name));
      add.focus();
    });
    gone.setAttribute("aria-label", `Remove ${name}`);
    const changed = (change, redraw) =>
      alter(name, ({ property }) => ({ property: change(property) }), redraw);
    const own = inputs(entry, { labelled, place, say, alter: changed });
    return h("div", { class: "tb-row", role: "group", "aria-label": `Argument ${name}` },
      labelled("Name", nameInput), own.inputs,
      h("div", { class: "pg-actions tb-wide" },
        h("label", { class: "pg-check", for: required.id }, required, " Required"), up, down, gone),
      own.plain ? null : h("p", { class: "pg-hint tb-wide" }, "This argument has more than a row can show. Edit it in the JSON."),
      fault);
  }

  draw();
  return { value: read, set: write, isEditable, note: (element) => left.append(element), onchange: (listener) => textarea.addEventListener("input", listener) };
}

// The input of an argument's description, which every notation has.
export function descriptionInput({ property }, { labelled, place, alter }) {
  const input = h("input", {
    type: "text", class: "pg-input", value: property?.description ?? "", autocomplete: "off", ...place("description"),
    oninput: () => alter(({ description: _, ...rest }) => (input.value ? { ...rest, description: input.value } : rest)),
  });
  return labelled("Description", input, "tb-wide");
}

function free(names) {
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? "argument" : `argument${number}`;
    if (!names.includes(name)) return name;
  }
}
