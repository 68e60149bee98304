"""A validator of tokens for tests: `NAME-SECONDS-signed` authenticates NAME for this number of seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kcore.security.oauthbearer import OAuthIdentity


def validate(token: str, extensions: Mapping[str, str]) -> OAuthIdentity:
    name, seconds, signature = token.split("-")
    if signature != "signed":
        raise ValueError(f"{token} is not signed")
    return OAuthIdentity(name, int(time.time() * 1000) + int(seconds) * 1000)
