// The form of a new alert rule: only the fields of the chosen kind, and the unit of its threshold.

const kind = document.querySelector("select[name=kind][data-measures]");

function row(name) {
  const field = document.querySelector(`[name=${name}]`);
  return field?.closest(`.field-${name}`) ?? field?.closest(".form-row");
}

function show() {
  const measure = JSON.parse(kind.dataset.measures)[kind.value];
  for (const name of ["threshold", "window_minutes", "min_calls", "tool_pattern"]) {
    const found = row(name);
    if (found) found.hidden = Boolean(measure) && !measure.fields.includes(name);
  }
  const help = document.getElementById("id_threshold_helptext");
  if (help && measure) help.textContent = measure.help;
}

if (kind) {
  kind.addEventListener("change", show);
  show();
}
