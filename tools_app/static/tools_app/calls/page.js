// The page of a finished call, and any page with JSON views or copy buttons.

import { enhance } from "./enhance.js";

enhance(document);
