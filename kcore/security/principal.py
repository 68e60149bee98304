"""Principals: the names of certificate subjects and authenticated users in access control lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kcore.errors import ConfigError

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that did not authenticate."""

_KEYWORDS = {  # RFC 2253, 2.3: keywords of OpenSSL's attribute types
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL = "emailAddress"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|(DEFAULT)")


def user_principal(name: str) -> str:
    """Returns the principal of an authenticated name."""
    return f"User:{name}"


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Formats the subject of a certificate per RFC 2253, as Java does: "CN=client,OU=tests,C=CH".

    Args:
        certificate: the result of `ssl.SSLSocket.getpeercert()`; empty if the peer sent none.

    Returns:
        The name, with the most specific part first; "" if the certificate has no subject. RFC 2253 has no keyword for
        an e-mail address: the name contains its object id with the encoded value. Other attributes without a keyword
        keep OpenSSL's name.
    """
    parts = [
        "+".join(_attribute(name, value) for name, value in relative) for relative in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    if name == _EMAIL:
        encoded = value.encode()
        size = len(encoded).to_bytes((len(encoded).bit_length() + 7) // 8 or 1, "big")
        if len(encoded) >= 128:
            size = bytes((0x80 + len(size),)) + size  # DER, long form
        return f"1.2.840.113549.1.9.1=#{(bytes((0x16,)) + size + encoded).hex()}"
    return f"{_KEYWORDS.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped


class PrincipalRules:
    """`ssl.principal.mapping.rules` (KIP-371): maps a certificate's subject to a name.

    The first rule whose pattern matches the whole subject determines the name. `DEFAULT` returns the subject itself.
    In the replacement, `$1` and `$2` are groups of the pattern; a final `L` or `U` converts to lower or upper case.

    Args:
        text: "DEFAULT", or rules like `RULE:^CN=(.*?),.*$/$1/L,DEFAULT`.

    Raises:
        ConfigError: the text contains an invalid rule.
    """

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []  # None: the subject itself
        position = 0
        while position < len(text):
            rule = _RULE.match(text, position)
            position = len(text) if rule is None else rule.end()
            if rule is None or text[position : position + 1] not in ("", ","):
                raise ConfigError(f"ssl.principal.mapping.rules={text!r} is not RULE:pattern/name/[LU],DEFAULT")
            position += 1
            if rule[4]:
                self._rules.append(None)
                continue
            try:
                pattern = re.compile(rule[1])
            except re.error as error:
                raise ConfigError(f"ssl.principal.mapping.rules: the pattern {rule[1]!r}: {error}") from None
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", rule[2].replace("\\", "\\\\"))
            self._rules.append((pattern, replacement, rule[3]))

    def name(self, subject: str) -> str | None:
        """Returns the name of a subject; None if no rule matches."""
        for rule in self._rules:
            if rule is None:
                return subject
            pattern, replacement, case = rule
            match = pattern.fullmatch(subject)
            if match is not None:
                name = match.expand(replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None
