// Keeps the relative times of an open page fresh. The server writes the same texts: see times.py.
(() => {
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const NOW_SECONDS = 5;
  const MAX_RELATIVE_SECONDS = 30 * 86400;
  const EVERY_MS = 10_000;

  function relativeText(when, now) {
    const distance = (when - now) / 1000;
    const seconds = Math.floor(Math.abs(distance));
    if (seconds < NOW_SECONDS) {
      return "just now";
    }
    const [size, unit] = UNITS.find(([size]) => seconds >= size);
    const amount = `${Math.floor(seconds / size)} ${unit}`;
    return distance > 0 ? `in ${amount}` : `${amount} ago`;
  }

  function refresh() {
    if (document.hidden) {
      return;
    }
    const now = Date.now();
    for (const element of document.querySelectorAll("time[datetime][title]")) {
      const when = Date.parse(element.dateTime);
      // A distant time is a date, and stays one.
      if (Math.abs(when - now) < MAX_RELATIVE_SECONDS * 1000) {
        const text = relativeText(when, now);
        if (element.textContent !== text) {
          element.textContent = text;
        }
      }
    }
  }

  setInterval(refresh, EVERY_MS);
  document.addEventListener("visibilitychange", refresh);
})();
