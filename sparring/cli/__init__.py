"""The command line, one file per group of commands."""


def main() -> None:
    """Entry point of `sparring`; the commands are imported only when it is called."""
    from sparring.cli.app import main as run

    run()
