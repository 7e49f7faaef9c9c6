"""``python -m a2lp`` is ``a2lp``."""

from a2lp.cli.interrupts import handle_interrupts, ignore_interrupts


def main() -> None:
    """Run the command line."""
    handle_interrupts()  # before the imports of the commands, which take a moment

    from a2lp.cli.app import app

    try:
        app()
    except SystemExit as end:
        if end.code == 0:
            ignore_interrupts()
        raise


if __name__ == "__main__":
    main()
