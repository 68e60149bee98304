"""Wherever kcore reads JSON, deeply nested JSON is an error of the component that reads it, and never a
RecursionError.
"""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path

import jwt
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from kcore.cluster.store import NodeDescription
from kcore.config.node import Config
from kcore.errors import KcoreError
from kcore.json_text import MAX_DEPTH, TOO_DEEP, parse_json
from kcore.security.oauthbearer import TokenRefusedError
from kcore.server.jwt_validator import JwtValidator, KeySet
from kcore.spark.export.exporter import _json_rows
from kcore.spark.export.manifest import Manifest
from kcore.spark.restore.plan import load
from kcore.spark.state import checkpoint
from kcore.testing.control.fields import InvalidRequestError
from kcore.testing.control.server import parse_body

ROOT = Path(__file__).parents[1]
DEPTHS = [MAX_DEPTH + 1, 900, 100_000]
"""Depths of nesting above kcore's limit. Only the last depth also exceeds the limit of the interpreter."""


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_document_that_is_nested_too_deeply_is_refused(opening: str, depth: int) -> None:
    closing = "".join("]" if character == "[" else "}" for character in reversed(opening) if character in "[{")
    text = opening * depth + "0" + closing * depth
    for document in (text, text.encode()):
        with pytest.raises(ValueError, match=TOO_DEEP):
            parse_json(document)


def test_long_documents_and_the_permitted_depth_are_read() -> None:
    deep = nested(MAX_DEPTH)
    wide = {"rows": [{"name": "[" * 200, "values": [[], {}]}] * 1_000}
    assert json.dumps(parse_json(deep)) == deep
    assert parse_json(json.dumps(wide)) == wide
    with pytest.raises(ValueError, match="Expecting value"):
        parse_json("")


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_reader_refuses_deep_nesting_with_its_own_error(tmp_path: Path, depth: int) -> None:
    deep = nested(depth)
    with pytest.raises(InvalidRequestError, match="the body is not valid JSON: the JSON has more than"):
        parse_body(deep.encode())
    with pytest.raises(ValueError, match="are not the description of a node"):
        NodeDescription.decode(deep.encode())
    (tmp_path / "manifest.json").write_text(deep)
    with pytest.raises(KcoreError, match="the manifest cannot be read: the JSON has more than"):
        Manifest.load(tmp_path)
    for name, text in (("plan.json", deep), ("plan.csv", f"#{deep}\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(KcoreError, match="cannot be read as a restore plan: ValueError: the JSON has more than"):
            load(tmp_path / name)
    reports: list[object] = []
    assert list(_json_rows([deep.encode()], reports.append)) == []
    assert reports == [f"line 1: {TOO_DEEP}"]
    table = pa.Table.from_pylist(
        [{field.name: deep.encode() if field.name == "value" else None for field in checkpoint._SCHEMA}],
        checkpoint._SCHEMA,
    ).set_column(checkpoint._SCHEMA.get_field_index("number"), "number", pa.array([0], pa.int64()))
    with pytest.raises(KcoreError, match=r"the checkpoint of t-0 is damaged \(the JSON has more than"):
        checkpoint.resume("t", 0, [table], None)


@pytest.mark.parametrize("depth", DEPTHS)
def test_tokens_and_keys_of_oauthbearer_are_refused(caplog: pytest.LogCaptureFixture, depth: int) -> None:
    settings = Config.of({"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys"}).for_listener("X")
    deep = base64.urlsafe_b64encode(f'{{"alg":"RS256","kid":{nested(depth)}}}'.encode()).rstrip(b"=").decode()
    validate = JwtValidator(settings, KeySet(settings, read=lambda url: nested(depth).encode()))
    with pytest.raises((TokenRefusedError, jwt.InvalidTokenError)):
        validate(f"{deep}.{deep}.AAAA", {})
    key = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"r"}').rstrip(b"=").decode()
    with pytest.raises(TokenRefusedError):
        validate(f"{key}.{key}.AAAA", {})
    assert "nested levels; 0 keys stay in use" in caplog.text


def test_a_signed_token_that_is_nested_too_deeply_is_refused() -> None:
    """The token has a valid signature of the issuer's key, so its claims are parsed."""
    settings = Config.of({"sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys"}).for_listener("X")
    key = rsa.generate_private_key(65537, 2048)
    row = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "r", "use": "sig"}
    validate = JwtValidator(settings, KeySet(settings, read=lambda url: json.dumps({"keys": [row]}).encode()))
    claims = f'{{"sub":{nested(DEPTHS[-1])}}}'.encode()
    token = jwt.PyJWS().encode(claims, key, "RS256", headers={"kid": "r"})
    with pytest.raises(
        (TokenRefusedError, jwt.InvalidTokenError)
    ):  # older versions of PyJWT do not handle the recursion
        validate(token, {})


def test_only_this_module_parses_json() -> None:
    """Only `kcore/json_text.py` calls `json.load` or `json.loads`.

    Demonstrations are exempt, because they read only the output of their own processes.
    """
    users = set()
    for path in (ROOT / "kcore").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "json" not in text or "demo" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in ("load", "loads") and ast.unparse(node.value) == "json":
                users.add(path.relative_to(ROOT).as_posix())
    assert users == {"kcore/json_text.py"}
