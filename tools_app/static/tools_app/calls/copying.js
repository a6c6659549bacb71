// Copy buttons beside values.

import { copyButton } from "../playground/dom.js";

export function offerCopies() {
  for (const value of document.querySelectorAll("[data-copy]")) {
    const text = value.textContent.trim();
    const copy = copyButton(() => text, value);
    copy.classList.add("call-copy");
    copy.title = `Copy: ${value.previousElementSibling.textContent}`;
    value.append(" ", copy);
  }
}
