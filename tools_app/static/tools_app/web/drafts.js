// Keeps what was typed into a form over a login that ran out.
//
// A form is copied into the storage of its tab when it is sent, and the copy is deleted by the next page, unless that
// is the login or an error: then it waits for the form to be opened again by the same user. The copy never leaves the
// browser, and has no password, no file and no token.
(() => {
  const KEY = "mcphub_draft";
  const MAX_LENGTH = 1_000_000;
  const MAX_AGE_MS = 3_600_000;
  const UNKEPT = new Set(["password", "file", "submit", "button", "hidden"]);
  // The values that the form was opened with: see conflicts.py.
  const OPENED = "_opened";
  const RESTORED = "What you typed before you logged in again is back. It is not saved yet.";

  function isKept(field) {
    return field.name && (!UNKEPT.has(field.type) || field.name === OPENED);
  }

  function fieldsOf(form) {
    return [...form.elements].filter(isKept).map((field) => ({
      name: field.name,
      value: field.value,
      checked: Boolean(field.checked),
      chosen: field.selectedOptions ? [...field.selectedOptions].map((option) => option.value) : null,
    }));
  }

  function keep(form, person) {
    const draft = { person, path: location.pathname + location.search, at: Date.now(), fields: fieldsOf(form) };
    const text = JSON.stringify(draft);
    try {
      if (text.length <= MAX_LENGTH) {
        sessionStorage.setItem(KEY, text);
      }
    } catch {
      // The storage is full or switched off: the form is sent all the same.
    }
  }

  function stored() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY));
    } catch {
      return null;
    }
  }

  function restore(form, draft) {
    const fields = [...form.elements].filter(isKept);
    for (const draftField of draft.fields) {
      const radio = (field) => field.type !== "radio" || field.value === draftField.value;
      const field = fields.find((field) => field.name === draftField.name && radio(field));
      if (!field) {
        continue;
      }
      if (field.type === "checkbox" || field.type === "radio") {
        field.checked = draftField.checked;
      } else if (draftField.chosen) {
        for (const option of field.options) {
          option.selected = draftField.chosen.includes(option.value);
        }
      } else {
        field.value = draftField.value;
      }
      field.dispatchEvent(new Event("change", { bubbles: true }));
    }
    const note = document.createElement("p");
    note.className = "hub-note";
    note.setAttribute("role", "status");
    note.textContent = RESTORED;
    form.prepend(note);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const draft = stored();
    const mark = document.querySelector("form [data-draft-of]");
    const form = mark?.closest("form");
    const waits = document.querySelector("#login-form, [data-keeps-draft]");
    if (draft && waits) {
      sessionStorage.setItem(KEY, JSON.stringify({ ...draft, waited: true }));
    } else if (draft) {
      sessionStorage.removeItem(KEY);
      const isSame = form && draft.path === location.pathname + location.search && draft.person === mark.dataset.draftOf;
      if (isSame && draft.waited && Date.now() - draft.at < MAX_AGE_MS) {
        restore(form, draft);
      }
    }
    form?.addEventListener("submit", () => keep(form, mark.dataset.draftOf));
  });
})();
