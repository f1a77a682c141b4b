"""Text from a learner's process, made safe to show: no control or direction characters reach a terminal or a parser."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """``text`` with control, direction and surrogate characters written as ``\\xNN`` or ``\\uNNNN``; tabs as spaces."""
    return _HIDDEN.sub(_spell, text.replace("\r\n", "\n").expandtabs(4))


def _spell(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
