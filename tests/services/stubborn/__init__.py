"""An operator's app, as MCPHUB_APPS installs it, with a tool that a worker cannot talk out of running."""
