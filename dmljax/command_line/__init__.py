"""The command `dmljax`."""


def main() -> None:
    """Runs the command line of this process, and ends it; after an interrupt, with one line."""
    # Importing anything else takes longer than users take to change their minds.
    try:
        from dmljax.foundation import interrupts

        interrupts.install()
    except KeyboardInterrupt:
        from dmljax.foundation import interrupts

        interrupts.end()
    from dmljax.command_line import cli

    try:
        status = cli.main()
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 0
    interrupts.leave(status)
