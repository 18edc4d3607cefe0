"""Words for those who wait for other ranks to do the same."""

import contextlib
import logging
import threading
from typing import Iterator

_LOG = logging.getLogger("weft")
SECONDS = 10.0  # after which the log says what is waited for


@contextlib.contextmanager
def waiting_for_all(what: str) -> Iterator[None]:
    """Something that all ranks must do together."""
    timer = threading.Timer(SECONDS, lambda: _LOG.warning("weft: %s is a call of all ranks; this one has waited %.0f s for the others",
                                                          what, SECONDS))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
