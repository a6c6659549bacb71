// Copy buttons beside values.

import { copyButton } from "../web/playground/dom.js";

export function offerCopies(root) {
  for (const value of root.querySelectorAll("[data-copy]")) {
    const text = value.textContent.trim();
    const copy = copyButton(() => text, value);
    copy.classList.add("call-copy");
    copy.title = `Copy: ${value.previousElementSibling.textContent}`;
    value.append(" ", copy);
  }
}
