"""Parses JAAS configurations, in the form in which Kafka's brokers accept them.

The options `user_NAME="password"` of PlainLoginModule define the users of PLAIN. The login modules of other mechanisms
have options only for connections between brokers, so they do not affect clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kcore.errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
OTHER_MECHANISMS = re.compile(
    r".+\.(scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.sasl\.jaas\.config", re.IGNORECASE
)
"""Pattern of the JAAS settings of mechanisms other than PLAIN, such as `NAME.oauthbearer.sasl.jaas.config`.

The prefix `listener.name.` of the settings is not part of the pattern.
"""

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[^\s"'=;/]+)"""
    r"""|(?P<sign>[=;])""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


def plain_users(text: str) -> Mapping[str, str]:
    """Returns the users of a JAAS configuration and their passwords.

    Args:
        text: the login module, its control flag and its options, closed by a semicolon.

    Raises:
        ConfigError: the text is not one entry of PlainLoginModule. The message quotes no part of the text, because the
            text contains passwords.
    """
    module, options = login_module(text)
    if module != PLAIN_MODULE:
        raise ConfigError(f"SASL/PLAIN needs the login module {PLAIN_MODULE}")
    users: dict[str, str] = {}
    for number, (name, value) in enumerate(options, 1):
        if name.startswith(USER_PREFIX):
            user = name.removeprefix(USER_PREFIX)
            if not user or not value:
                raise ConfigError(f"option {number} of the login module has no user or no password")
            if user in users:
                raise ConfigError(f"option {number} of the login module names the user of an earlier option")
            users[user] = value
    return users


def login_module(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the class of a JAAS configuration's login module, and its options.

    Raises:
        ConfigError: the text is not exactly one login module. The message quotes no part of the text, because the text
            contains passwords.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ConfigError(
            "a JAAS configuration must have the form MODULE FLAG OPTION=VALUE ... and end with a semicolon"
        )
    if tokens[0][1]:
        raise ConfigError("a JAAS configuration must begin with the class of a login module")
    if tokens[1][0].lower() not in _FLAGS or tokens[1][1]:
        raise ConfigError(f"the control flag of a login module must be one of {', '.join(sorted(_FLAGS))}")
    rest = tokens[2:-1]
    if (";", True) in rest:
        raise ConfigError("a JAAS configuration of a listener must have exactly one login module")
    options = []
    for start in range(0, len(rest), 3):
        option = rest[start : start + 3]
        if len(option) < 3 or option[0][1] or option[1] != ("=", True) or option[2][1]:
            raise ConfigError(f'option {start // 3 + 1} of the login module is not NAME="VALUE"')
        options.append((option[0][0], option[2][0]))
    return tokens[0][0], options


def other_jaas_fault(text: str) -> str | None:
    """Describes the problem of a JAAS configuration for any mechanism; None if it is valid or empty.

    The description quotes no part of the text, because the text contains passwords.
    """
    if not text:
        return None
    try:
        module, options = login_module(text)
        if module != PLAIN_MODULE and any(name.startswith(USER_PREFIX) for name, _ in options):
            plain_users(text)  # raises: only this module has users
    except ConfigError as error:
        return f"is not valid: {error}"
    return None


def jaas_fault(text: str) -> str | None:
    """Describes the problem of a JAAS configuration for PLAIN; None if it is valid or empty.

    The description quotes no part of the text, because the text contains passwords.
    """
    if not text:
        return None
    try:
        plain_users(text)
    except ConfigError as error:
        return f"is not valid: {error}"
    return None


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Splits a JAAS configuration into tokens.

    Returns:
        Pairs of the token's text without quotes, and True if the token is one of the signs `=` and `;`.
    """
    tokens: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError(f"the JAAS configuration has a syntax error at character {position + 1}")
        position = match.end()
        if match["quoted"] is not None:
            tokens.append((_ESCAPE.sub(_unescape, match["quoted"][1:-1]), False))
        elif match["space"] is None:
            tokens.append((match[0], match["sign"] is not None))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1])
