// Configures htmx for the Content-Security-Policy: no inline style, no code evaluated from attributes.
if (window.htmx) {
  window.htmx.config.includeIndicatorStyles = false;
  window.htmx.config.allowEval = false;
}
