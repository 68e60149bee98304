"""Principals: what a certificate's subject and an authenticated name are called in access control lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kcore.errors import ConfigError

ANONYMOUS = "User:ANONYMOUS"
"""Who did not authenticate."""

_KEYWORDS = {  # RFC 2253, 2.3: what is written for the attribute types that OpenSSL calls so
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
    """The principal of an authenticated name."""
    return f"User:{name}"


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate in RFC 2253's form, as Java writes it: "CN=client,OU=tests,C=CH".

    Args:
        certificate: as `ssl.SSLSocket.getpeercert()` gives it; empty where the peer showed none.

    Returns:
        The name, most specific part first; "" if there is none. An e-mail address, for which RFC 2253 has no keyword,
        is its number with the encoded value; of other such attributes OpenSSL's name is used.
    """
    parts = [
        "+".join(_attribute(name, value) for name, value in relative) for relative in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    if name == _EMAIL:
        encoded = value.encode()
        size = bytes((len(encoded),)) if len(encoded) < 128 else bytes((0x81, len(encoded)))
        return f"1.2.840.113549.1.9.1=#{(bytes((0x16,)) + size + encoded).hex()}"
    return f"{_KEYWORDS.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text


class PrincipalRules:
    """`ssl.principal.mapping.rules` (KIP-371): how a subject becomes a name.

    Rules are tried in turn; the first whose pattern matches the whole subject makes the name. `DEFAULT` is the subject
    itself. Groups of the pattern are `$1`, `$2` in the replacement; `L` and `U` at the end give lower and upper case.

    Args:
        text: "DEFAULT", or rules like `RULE:^CN=(.*?),.*$/$1/L,DEFAULT`.

    Raises:
        ConfigError: it holds something that is no rule.
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
        """The name of a subject; None if no rule matches it."""
        for rule in self._rules:
            if rule is None:
                return subject
            pattern, replacement, case = rule
            match = pattern.fullmatch(subject)
            if match is not None:
                name = match.expand(replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        return None
