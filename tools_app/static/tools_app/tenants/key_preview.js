// A preview of what a key's patterns match while they are edited.

const PAUSE_MS = 300;

const shown = document.querySelector("[data-key-preview]");
const patterns = document.getElementById(shown?.dataset.field || "id_tool_patterns");
const tenant = document.getElementById("id_tenant");
const toolset = document.getElementById("id_toolset");

let waiting = 0;
let newest = 0;

async function refresh() {
    const chosen = tenant?.value || shown.dataset.tenant;
    if (!chosen) {
        return;
    }
    const mine = (newest += 1);
    const form = new FormData();
    form.set("tenant", chosen);
    form.set("patterns", patterns.value);
    form.set("toolset", toolset?.value || "");
    form.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
    try {
        const response = await fetch(shown.dataset.keyPreview, { method: "POST", body: form });
        const { text } = await response.json();
        if (mine === newest) {
            shown.textContent = text;
        }
    } catch {
        // The hub is unreachable or the login has expired: saving the form reports it.
    }
}

function soon() {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, PAUSE_MS);
}

if (shown && patterns) {
    patterns.addEventListener("input", soon);
    tenant?.addEventListener("change", soon);
    toolset?.addEventListener("change", soon);
    if (tenant?.value) {
        soon();
    }
}
