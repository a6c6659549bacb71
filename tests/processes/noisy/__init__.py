"""An operator's app, as MCPHUB_APPS installs it, with tools that do not behave on standard streams."""

LINES = "one\ntwo\r\nthree\u2028four"
