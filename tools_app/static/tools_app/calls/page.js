// The page of a finished call, and any page with JSON views or copy buttons.

import { offerCopies } from "./copying.js";
import { upgrade } from "./json_view.js";
import { replay } from "./replay.js";

for (const box of document.querySelectorAll("[data-json]")) upgrade(box);
offerCopies();
const box = document.querySelector("[data-replay]");
if (box) replay(box, document.querySelector("[data-events]"));
