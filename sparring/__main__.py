"""`python -m sparring`: the command line, for launchers that start a module."""

from sparring.cli.app import main

main()
