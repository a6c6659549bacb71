// What scripts add to a call: JSON trees, copy buttons, and the replay of its events.

import { offerCopies } from "./copying.js";
import { upgrade } from "./json_view.js";
import { replay } from "./replay.js";

export function enhance(root) {
  for (const box of root.querySelectorAll("[data-json]")) upgrade(box);
  offerCopies(root);
  const box = root.querySelector("[data-replay]");
  if (box) replay(box, root.querySelector("[data-events]"));
}
