"""`python -m mcphub up`: the commands of `manage.py` for an installation without a checkout."""

from mcphub.startup import main

main()
