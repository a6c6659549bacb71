"""An operator's app, as MCPHUB_APPS installs it, with tools that do not behave on standard streams."""
