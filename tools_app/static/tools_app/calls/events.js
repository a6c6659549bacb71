// Events of a call as rows of its timeline, created from the page's template.

const TEXTS = ["offset", "kind", "label", "title", "text", "raw"];

export function eventRow(told) {
  const row = document.getElementById("call-event").content.firstElementChild.cloneNode(true);
  const slot = (name) => row.querySelector(`[data-slot="${name}"]`);
  for (const name of TEXTS) slot(name).textContent = told[name];
  for (const name of ["kind", "label"]) slot(name).dataset.is = told[name];
  slot("label").hidden = !told.label;
  slot("text").hidden = !told.text;
  slot("more").hidden = !told.raw;
  slot("percent").hidden = told.percent === null;
  slot("percent").value = told.percent ?? 0;
  row.dataset.sequence = told.sequence;
  return row;
}
