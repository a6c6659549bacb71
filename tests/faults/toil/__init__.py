"""An operator's app, as MCPHUB_APPS installs it, whose tools are told apart by the word that each call brings."""
