"""The judge process: `python -I -m grader.judge.server FD ISOLATION`.

Order matters here.  torch is imported and the zygote forked first; the hidden
tests, the reference and pytest come into this process only afterwards, so no
host can inherit them.
"""

from __future__ import annotations

import os
import socket
import sys

from grader.host import limits, sandbox, wire, zygote
from grader.host.process import Zygote
from grader.model import INTERPRET_VARIABLE, Isolation


def main() -> int:
    """Serve grade orders until the other end closes."""
    limits.die_with_parent()
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    isolation = Isolation(sys.argv[2])
    zygotes: dict[Isolation, Zygote] = {}
    if isolation is Isolation.BWRAP and INTERPRET_VARIABLE in os.environ and not sandbox.why_not():
        zygotes[isolation] = Zygote.executed(isolation)  # imports torch beside us
    zygote.prepare_torch()
    if INTERPRET_VARIABLE not in os.environ:
        os.environ[INTERPRET_VARIABLE] = "0" if sys.modules["torch"].cuda.is_available() else "1"
    if isolation is Isolation.PROCESS:
        zygotes[isolation] = Zygote.forked()
    reference_zygote = Zygote.forked(meta=False)  # for timed hosts of the solution: submissions come from the other one
    limits.hide_memory()
    return _serve(channel, zygotes, reference_zygote)


def _serve(channel: socket.socket, zygotes: dict[Isolation, Zygote], reference_zygote: Zygote) -> int:
    import gc

    gc.disable()  # what is imported stays
    import msgspec

    from grader.errors import KitError
    from grader.judge import orders
    from grader.judge.proving import prove
    from grader.judge.session import Judge

    gc.freeze()
    gc.enable()
    judge = Judge(zygotes, reference_zygote)

    def send(event: orders.Event) -> None:
        channel.sendall(wire.frame(orders.encoder.encode(event)))

    try:
        while True:
            try:
                order = orders.order_decoder.decode(wire.receive(channel))
                if isinstance(order, orders.ProveOrder):
                    send(orders.Proved(prove(judge, order, send)))
                else:
                    send(orders.Finished(judge.grade(order, send)))
            except KitError as error:
                send(orders.Fault(error.message, error.hint, error.exit_code))
            except msgspec.DecodeError as error:
                send(orders.Fault(f"the judge was sent an order it cannot read: {error}", "", 3))
    except (wire.Closed, BrokenPipeError, ConnectionResetError):
        return 0
    finally:
        judge.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
