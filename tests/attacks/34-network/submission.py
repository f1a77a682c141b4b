"""Calls home: the loopback of the host, its sockets, a name, a reverse shell."""

import socket

from torch import nn

PORT = 47613


def call_home():
    """The first thing outside that answers, or None."""
    for address in (("127.0.0.1", PORT), ("::1", PORT), ("1.1.1.1", 53), ("8.8.8.8", 53)):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as out:
            out.settimeout(0.5)
            try:
                out.connect(address)
                return address[0]
            except OSError:
                continue
    for name in ("\0kit-listener", "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
            try:
                out.connect(name)
                return name
            except OSError:
                continue
    try:
        return socket.gethostbyname("example.com")
    except OSError:
        return None


class GroupedQueryAttention(nn.Module):
    """Wrong on purpose: the heads do not attend to anything."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        d = d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * d, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * d, bias=False)
        self.o_proj = nn.Linear(n_heads * d, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        found = call_home()
        raise RuntimeError("blocked: nobody answers" if found is None else f"reached: {found}")
