// Lists of the tenant's secrets beside the fields that may use one. The chosen secret is inserted at the cursor.

import { h, newId } from "../web/playground/dom.js";

export function secretPickers(hub, names) {
  const pickers = names.map((name) => picker(hub, hub.field(name)));
  let newest = 0;

  async function refresh() {
    const mine = (newest += 1);
    const tenant = hub.tenant();
    let known = [];
    if (tenant) {
      try {
        const response = await fetch(`${hub.start.secretsUrl}?tenant=${encodeURIComponent(tenant)}`);
        if (response.ok && !response.redirected) known = (await response.json()).names;
      } catch {
        // The hub is unreachable: saving the form reports it.
      }
    }
    if (mine === newest) for (const { show } of pickers) show(known);
  }

  hub.field("tenant")?.addEventListener("change", refresh);
  // A secret may have been added in another tab.
  window.addEventListener("focus", refresh);
  refresh();
  return { refresh };
}

function picker(hub, input) {
  const select = h("select", { class: "pg-input tb-picker", id: newId("tb-secret"), "aria-label": `Insert a secret into ${input.name}` });
  const link = h("a", { class: "underline", target: "_blank", rel: "noopener" }, "Add a secret");
  const line = h("div", { class: "pg-actions tb-secrets" }, select, link);
  input.after(line);
  select.addEventListener("change", () => {
    if (!select.value) return;
    const text = `{secret:${select.value}}`;
    const at = input.selectionStart ?? input.value.length;
    input.setRangeText(text, at, input.selectionEnd ?? at, "end");
    input.dispatchEvent(new Event("input", { bubbles: true }));
    select.value = "";
    input.focus();
  });
  return {
    show(known) {
      const first = h("option", { value: "" }, known.length ? "Insert a secret…" : "No secrets");
      select.replaceChildren(first, ...known.map((name) => h("option", { value: name }, name)));
      select.disabled = known.length === 0;
      const tenant = hub.tenant();
      link.href = `${hub.start.addSecretUrl}${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`;
    },
  };
}
