// Choosing what a key can use by ticking names. The field of names stays what is saved: a ticked box is a line of it, such
// as tool=echo, and what a pattern or a name without a kind matches is ticked, too. Without this script, the field itself
// is used.

const shown = document.querySelector("[data-key-names]");
const field = document.getElementById(shown?.dataset.field || "id_tool_patterns");
// A toolset consists of tools, and is never everything.
const isToolset = shown?.dataset.only === "tool";
const tenant = document.getElementById("id_tenant");
const GROUPS = [
    ["Tools that only read", (offer) => offer.kind === "tool" && offer.read_only],
    ["Tools that can change something", (offer) => offer.kind === "tool" && !offer.read_only],
    ["Prompts", (offer) => offer.kind === "prompt"],
    ["Resources", (offer) => offer.kind === "resource"],
];

const el = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
};
const lines = () => field.value.split("\n").map((line) => line.trim()).filter(Boolean);
const isList = () => field.value.trim().startsWith("[");

// The line for an offer and no other. A toolset has tools only, and their names have no `*`.
const lineFor = (offer) => isToolset ? offer.name : `${offer.kind}=${offer.name}`;

// Whether a line goes when the box of this offer is unticked.
const isOf = (offer, line) => line === lineFor(offer) || (line === offer.name && !line.includes("*"));

// As the hub matches: `*` is any text, except in a line for exactly one.
function fits(offer, pattern) {
    const { kind, name } = offer;
    const exact = isToolset ? null : pattern.match(/^(tool|prompt|resource)=(.*)$/);
    if (exact) return kind === exact[1] && name === exact[2];
    const parts = pattern.split("*");
    if (parts.length === 1) return name === pattern;
    const [first, last] = [parts.shift(), parts.pop()];
    if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last)) return false;
    let at = first.length;
    for (const part of parts) {
        at = name.indexOf(part, at);
        if (at < 0 || at + part.length > name.length - last.length) return false;
        at += part.length;
    }
    return true;
}

function write(names) {
    field.value = names.join("\n");
    field.dispatchEvent(new Event("input", { bubbles: true }));
}

function picker(offers, hidden) {
    const everything = el("input", { type: "radio", name: "key-names", id: "key-names-all" });
    const some = el("input", { type: "radio", name: "key-names", id: "key-names-some" });
    const search = el("input", { type: "search", placeholder: "Find a name", ariaLabel: "Find a name", className: "hub-find" });
    const boxes = offers.map((offer) => ({ offer, box: el("input", { type: "checkbox" }) }));
    const fault = el("p", { className: "hub-fault", hidden: true, role: "alert", textContent: isToolset ? "Tick at least one." : "Tick at least one, or allow everything." });
    const chooser = el("div", { className: "hub-chooser" },
        el("p", { className: "hub-presets" }, preset("Read only", (offer) => offer.read_only), preset("All of these", () => true), preset("None", () => false)),
        search, ...groups(boxes),
        hidden ? el("p", { textContent: `${hidden} more are not listed. Write their names or a pattern below.` }) : "", fault);

    function preset(label, wanted) {
        return el("button", { type: "button", textContent: label, onclick: () => write(boxes.filter(({ offer }) => wanted(offer)).map(({ offer }) => lineFor(offer))) });
    }

    function sync() {
        const now = isList() ? [] : lines();
        if (now.length || isToolset) some.checked = true;
        else if (!some.checked) everything.checked = true;
        chooser.hidden = everything.checked || isList();
        fault.hidden = true;
        for (const { offer, box } of boxes) {
            const pattern = now.find((line) => !isOf(offer, line) && fits(offer, line));
            box.checked = Boolean(pattern) || now.some((line) => fits(offer, line));
            box.disabled = Boolean(pattern);
            box.title = box.disabled ? `By the pattern ${pattern}` : "";
        }
    }

    everything.onchange = () => { write([]); sync(); };
    some.onchange = sync;
    search.oninput = () => {
        const wanted = search.value.toLowerCase();
        for (const { offer, box } of boxes) {
            box.closest("label").hidden = !`${offer.name} ${offer.title} ${offer.description}`.toLowerCase().includes(wanted);
        }
    };
    for (const { offer, box } of boxes) {
        box.onchange = () => {
            if (box.checked) return write([...lines(), lineFor(offer)]);
            const kept = lines().filter((line) => !isOf(offer, line));
            // A name without a kind stood for items of other kinds, too.
            const others = boxes.filter((other) => other.box !== box && other.box.checked && other.offer.name === offer.name);
            write([...new Set([...kept, ...others.map((other) => lineFor(other.offer))])]);
        };
    }
    field.addEventListener("input", sync);
    field.form.addEventListener("submit", (event) => {
        if (everything.checked || lines().length) return;
        event.preventDefault();
        fault.hidden = false;
        fault.scrollIntoView({ block: "center" });
    });
    sync();
    if (isToolset) return el("div", {}, chooser);
    return el("div", {},
        el("label", {}, everything, " Everything, including what is added later"),
        el("label", {}, some, " Only what I tick"), chooser);
}

function groups(boxes) {
    return GROUPS.map(([legend, belongs]) => {
        const offered = boxes.filter(({ offer }) => belongs(offer));
        if (!offered.length) return "";
        return el("fieldset", { className: "hub-boxes" }, el("legend", { textContent: legend }),
            ...offered.map(({ offer, box }) => el("label", {}, box, el("span", {},
                el("strong", { textContent: offer.title || offer.name }), " ",
                offer.title ? el("code", { textContent: offer.name }) : "",
                offer.description ? el("br") : "", offer.description))));
    });
}

async function fill() {
    const chosen = tenant?.value || shown.dataset.tenant;
    shown.replaceChildren();
    fold.open = !chosen;
    if (!chosen) return;
    const answer = await fetch(`${shown.dataset.keyNames}?tenant=${encodeURIComponent(chosen)}`, { redirect: "manual" });
    if (!answer.ok) {
        fold.open = true;
        return;
    }
    const { offers, hidden } = await answer.json();
    shown.replaceChildren(picker(isToolset ? offers.filter((offer) => offer.kind === "tool") : offers, hidden));
    fold.open = isList();
}

const fold = el("details", { className: "hub-fold" }, el("summary", { textContent: "Patterns and names as text" }));
if (field && shown) {
    field.before(fold);
    fold.append(field);
    fold.before(shown);
    tenant?.addEventListener("change", fill);
    fill();
}
