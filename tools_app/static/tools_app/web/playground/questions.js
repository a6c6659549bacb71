// Requests of a tool to the client while it runs: elicitation (forms, URLs), sampling, roots. Each becomes a card.

import { button, h, pretty } from "./dom.js";
import { schemaForm } from "./schema_form.js";

// Ask in `place`. Returns a promise of the protocol result, rejected if the user declines, or by `signal`.
export function ask({ method, params = {} }, place, signal) {
  const draw = { "elicitation/create": elicitation, "sampling/createMessage": sampling, "roots/list": roots }[method];
  return new Promise((answer, refuse) => {
    const card = h("section", { class: "pg-card pg-question", "aria-label": "The tool asks" });
    const done = (settle) => (value) => {
      card.remove();
      settle(value);
    };
    signal?.addEventListener("abort", () => done(refuse)(new DOMException("Cancelled", "AbortError")));
    const close = { answer: done(answer), refuse: done(refuse) };
    card.append(...(draw ? draw(params, close) : unknown(method, close)));
    place.append(card);
    card.querySelector("input, select, textarea, button")?.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  });
}

function elicitation(params, close) {
  return params.mode === "url" ? page(params, close) : form(params, close);
}

function form(params, close) {
  const schema = { type: "object", properties: {}, ...params.requestedSchema };
  const fields = schemaForm(schema, () => {});
  const answer = () => {
    const content = fields.get() ?? {};
    const missing = (schema.required ?? []).filter((name) => content[name] === undefined);
    fields.clear();
    missing.forEach((name) => fields.fault([name], "is required"));
    if (!missing.length) close.answer({ action: "accept", content });
  };
  return [
    h("h3", {}, "The tool asks you"),
    h("p", {}, params.message),
    fields.element,
    h("div", { class: "pg-actions" },
      button("Answer", answer, "pg-primary"),
      button("Decline", () => close.answer({ action: "decline" })),
      button("Dismiss", () => close.answer({ action: "cancel" }))),
  ];
}

function page(params, close) {
  const isWeb = /^https?:\/\//i.test(params.url);
  const opened = () => close.answer({ action: "accept" });
  const link = h("a", {
    href: params.url, target: "_blank", rel: "noopener noreferrer", class: "pg-button pg-primary", onclick: opened,
  }, "Open the page");
  return [
    h("h3", {}, "The tool asks you to open a page"),
    h("p", {}, params.message),
    h("p", { class: "pg-mono pg-url" }, params.url),
    h("p", { class: "pg-hint" }, "Check the URL before you open it. What you enter there is not sent to the hub."),
    h("div", { class: "pg-actions" },
      isWeb ? link : null,
      button("Decline", () => close.answer({ action: "decline" })),
      button("Dismiss", () => close.answer({ action: "cancel" }))),
  ];
}

function sampling(params, close) {
  const words = h("textarea", { rows: 4, class: "pg-input", "aria-label": "The model's answer" });
  const answer = () => close.answer({
    role: "assistant", model: "a person in the playground", stopReason: "endTurn",
    content: { type: "text", text: words.value },
  });
  return [
    h("h3", {}, "The tool asks your model"),
    h("p", { class: "pg-hint" }, "The playground has no model. Enter its answer, or refuse."),
    params.systemPrompt ? h("p", { class: "pg-hint" }, params.systemPrompt) : null,
    ...(params.messages ?? []).map((message) => h("div", { class: "pg-content" },
      h("strong", {}, `${message.role}: `), spoken(message.content))),
    words,
    h("div", { class: "pg-actions" },
      button("Answer", answer, "pg-primary"),
      button("Refuse", () => close.refuse(refusal("The user rejected the sampling request.")))),
  ].filter(Boolean);
}

const spoken = (content) => (content?.type === "text" ? content.text : h("pre", { class: "pg-json" }, pretty(content)));

function roots(_params, close) {
  const uris = h("textarea", {
    rows: 3, class: "pg-input pg-mono", "aria-label": "Roots", placeholder: "file:///project",
  });
  const lines = () => uris.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return [
    h("h3", {}, "The tool asks for the roots of your workspace"),
    h("p", { class: "pg-hint" }, "One URI per line. An empty list is a valid answer."),
    uris,
    h("div", { class: "pg-actions" },
      button("Answer", () => close.answer({ roots: lines().map((uri) => ({ uri })) }), "pg-primary"),
      button("Refuse", () => close.refuse(refusal("The user rejected the roots request.")))),
  ];
}

function unknown(method, close) {
  return [
    h("h3", {}, `The tool asks for ${method}`),
    h("p", {}, "The playground does not support this request."),
    h("div", { class: "pg-actions" }, button("Refuse", () => close.refuse(refusal("Not supported.", -32601)))),
  ];
}

function refusal(message, code = -1) {
  return Object.assign(new Error(message), { code });
}
