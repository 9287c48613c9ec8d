"""What all tests share."""

import signal

# A shell lets what it starts in the background ignore Ctrl-C; its tests need it there, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
