"""``python -m a2lp`` is ``a2lp``."""

from a2lp.cli.app import main

if __name__ == "__main__":
    main()
