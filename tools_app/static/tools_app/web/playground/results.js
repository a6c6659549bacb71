// Rendering of tool, resource and prompt results: text, JSON, images, audio, links.

import { h, pretty } from "./dom.js";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const SOUNDS = /^audio\/[\w.+-]+$/;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}$/;

// Elements of any result: of tools/call, resources/read, prompts/get.
export function rendered(result) {
  const parts = [];
  for (const block of result.content ?? []) parts.push(block_(block));
  for (const contents of result.contents ?? []) parts.push(resource(contents));
  for (const message of result.messages ?? []) {
    parts.push(h("div", { class: "pg-content" }, h("strong", {}, `${message.role}: `), block_(message.content)));
  }
  if (result.structuredContent !== undefined) {
    parts.push(h("h4", {}, "Structured content"), json(result.structuredContent));
  }
  if (!parts.length) parts.push(h("p", { class: "pg-hint" }, "The result is empty."));
  return parts;
}

export function json(value) {
  return h("pre", { class: "pg-json", tabindex: "0" }, pretty(value));
}

function block_(block) {
  switch (block?.type) {
    case "text":
      return words(block.text);
    case "image":
      return picture(block) ?? json(block);
    case "audio":
      return sound(block) ?? json(block);
    case "resource_link":
      return link(block);
    case "resource":
      return resource(block.resource);
    default:
      return json(block);
  }
}

// A text; a JSON object or array is shown as JSON.
function words(text) {
  // Numbers with many digits would lose precision.
  if (/^\s*[[{]/.test(text) && !/\d{16,}/.test(text)) {
    try {
      return json(JSON.parse(text));
    } catch {
      // Not JSON after all.
    }
  }
  return h("pre", { class: "pg-text", tabindex: "0" }, text);
}

function picture({ mimeType, data, annotations }) {
  if (!IMAGES.test(mimeType) || !BASE64.test(data)) return null;
  return h("img", { class: "pg-image", src: `data:${mimeType};base64,${data}`, alt: annotations?.title ?? mimeType });
}

function sound({ mimeType, data }) {
  if (!SOUNDS.test(mimeType) || !BASE64.test(data)) return null;
  return h("audio", { controls: true, src: `data:${mimeType};base64,${data}` });
}

function link({ uri, name, title, description, mimeType }) {
  const isWeb = /^https?:\/\//i.test(uri);
  const shown = title ?? name ?? uri;
  return h("div", { class: "pg-content" },
    isWeb ? h("a", { href: uri, target: "_blank", rel: "noopener noreferrer", class: "text-link" }, shown) : shown,
    h("p", { class: "pg-hint pg-mono" }, [uri, mimeType].filter(Boolean).join(" · ")),
    description ? h("p", { class: "pg-hint" }, description) : null);
}

function resource(contents) {
  const { uri, mimeType = "", text, blob } = contents ?? {};
  const block = { mimeType, data: blob ?? "" };
  const shown = text !== undefined ? words(text) : picture(block) ?? sound(block)
    ?? h("p", {}, `${Math.floor((blob ?? "").length * 0.75)} bytes of ${mimeType || "unknown type"}`);
  const named = [uri, mimeType].filter(Boolean).join(" · ");
  return h("div", { class: "pg-content" }, h("p", { class: "pg-hint pg-mono" }, named), shown);
}
