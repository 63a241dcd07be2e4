"""`python -m gelu_study`: the command line without the installed script."""

import sys

from gelu_study.cli import main

sys.exit(main())
