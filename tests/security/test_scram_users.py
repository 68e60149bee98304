"""Users in the metadata log: AlterUserScramCredentials, durability, `kcore users`, and dumps without secrets."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from kcore.broker.acl.entries import PatternType
from kcore.broker.metadata.image_parts import image_parts
from kcore.broker.metadata.partition_range import MetadataBlock
from kcore.broker.metadata.scram_users import ScramUsers
from kcore.cli import main
from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kcore.protocol.records.metadata import AccessControlEntryRecord, UserScramCredentialRecord
from kcore.security.scram import ScramMechanism
from tests.security.exchange import SALT, credential_of
from tests.security.guarded import ADMIN, Guarded, acl

SHA_256, SHA_512 = ScramMechanism


def upsert(user: str, password: str = "secret", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    known = ScramMechanism(mechanism) if mechanism in (1, 2) else SHA_256
    salted = known.salted_password(password.encode(), SALT, max(iterations, 1))
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def delete(user: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(engine: Guarded, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    """Sends the alterations. Returns the error code of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    results = engine.send(request, 0, ADMIN).results
    assert all(bool(result.error_message) == (result.error_code not in {0, -1}) for result in results)
    return {result.user: result.error_code for result in results}


def test_credentials_are_kept_changed_and_removed_across_restarts() -> None:
    """Each mechanism stores its own keys, derived from the password."""
    engine = Guarded()
    assert alter(engine, upsert("alice"), upsert("bob", mechanism=2)) == {"alice": 0, "bob": 0}
    assert alter(engine, upsert("alice", "newer", 2, 8192)) == {"alice": 0}
    engine.restart()
    users = ScramUsers(engine.engine.topics)
    assert users.find("alice", SHA_256) == credential_of(SHA_256, "secret", SALT)
    assert users.find("alice", SHA_512) == credential_of(SHA_512, "newer", SALT, 8192)
    assert users.find("bob", SHA_256) is None
    assert alter(engine, upsert("alice", "newest"), delete("bob", 2)) == {"alice": 0, "bob": 0}
    engine.restart()
    users = ScramUsers(engine.engine.topics)
    assert users.find("alice", SHA_256) == credential_of(SHA_256, "newest", SALT)
    assert "bob" not in engine.engine.topics.image.scram


def test_invalid_changes_of_users_are_refused() -> None:
    """Each invalid change gets Kafka's error code: 91 for an absent user, 92 for a user named twice, 93 for a value
    that is not acceptable, 33 for an unknown mechanism. The other changes of the request succeed.
    """
    engine = Guarded()
    assert alter(engine, upsert("a"), upsert("b", iterations=4095), upsert("c", iterations=16_385)) == {
        "a": 0, "b": 93, "c": 93,
    }  # fmt: skip
    assert alter(engine, upsert(""), upsert("d", mechanism=0), upsert("e", mechanism=3)) == {"": 93, "d": 33, "e": 33}
    assert alter(engine, delete("a", 2), delete("nobody"), delete("f", 9)) == {"a": 91, "nobody": 91, "f": 33}
    assert alter(engine, delete("a", 2), upsert("a"), upsert("a")) == {"a": 91}, "the first error of a user counts"
    assert alter(engine, delete("a"), upsert("a")) == {"a": 92}
    empty = upsert("i")
    empty.salted_password = b""
    assert alter(engine, empty, upsert("h")) == {"i": -1, "h": 0}, "an empty password gets an error"
    assert alter(engine, upsert("g"), upsert("g", mechanism=2), upsert("h")) == {"g": 92, "h": 0}
    assert set(engine.engine.topics.image.scram) == {"a", "h"}


def test_texts_of_messages_have_no_secret() -> None:
    """A request's text, as a log line would show it, contains no password."""
    assert repr(upsert("alice")) == "ScramCredentialUpsertion(name='alice', mechanism=1, [hidden])"
    assert (
        repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")) == "SaslAuthenticateRequest(auth_bytes=[hidden])"
    )


def test_a_password_needs_a_terminal_or_a_file(tmp_path: Path) -> None:
    """Without a terminal the typed password would be visible, so the command fails and names the alternatives."""
    done = subprocess.run(
        [sys.executable, "-m", "kcore", "users", "add", "--user", "admin", str(tmp_path / "data")],
        input="open sesame\n",
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # without a terminal, also if the tests have one
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kcore: no terminal to ask for the password: use --password-file FILE, or --password-file - for the standard "
        "input\n"
    )
    assert not (tmp_path / "data").exists()


def test_users_of_a_data_folder_are_added_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs `kcore users add`, `list` and `remove`. A dump of the log shows no secret."""
    folder = str(tmp_path / "data")
    monkeypatch.setattr("sys.stdin", io.StringIO("open sesame\n"))
    assert main(["users", "add", "--user", "alice", "--password-file", "-", folder]) == 0
    (tmp_path / "password").write_text("another\n")
    add_bob = ["users", "add", "--user", "bob", "--password-file", str(tmp_path / "password")]
    assert main([*add_bob, "--mechanism", "SCRAM-SHA-256", folder]) == 0
    capsys.readouterr()
    assert main(["users", "list", folder, "--format", "json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        '{"user": "alice", "mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}',
        '{"user": "bob", "mechanisms": "SCRAM-SHA-256"}',
    ]
    assert main(["log", "dump", folder, "--topic", "__cluster_metadata"]) == 0
    dump = [line for line in capsys.readouterr().out.splitlines() if "UserScramCredential" in line]
    assert len(dump) == 3
    assert all("salt=[hidden] stored_key=[hidden] server_key=[hidden]" in line for line in dump)
    assert main(["users", "remove", "--user", "alice", folder]) == 0
    assert main(["users", "remove", "--user", "alice", folder]) == 1
    assert "user 'alice' does not exist" in capsys.readouterr().err
    assert main([*add_bob, "--iterations", "5", folder]) == 1
    assert "UNACCEPTABLE_CREDENTIAL" in capsys.readouterr().err


def test_the_records_of_an_image_restore_users_and_entries() -> None:
    """Compaction writes the metadata of a node (its image) as records. A new node that replays these records has the
    same users and entries.

    Replaying the records once more changes nothing.
    """
    before, after = Guarded(), Guarded()
    alter(before, upsert("alice"), upsert("bob", mechanism=2))
    alter(before, upsert("alice", mechanism=2), delete("bob", 2))
    before.allow(acl(Op.READ), acl(Op.WRITE, pattern=PatternType.PREFIXED))
    image = before.engine.topics.image
    kinds = (UserScramCredentialRecord, AccessControlEntryRecord)
    records = [
        record
        for part in image_parts(image, 1)
        for record in MetadataBlock(part)
        if isinstance(record.value.record, kinds)
    ]
    assert len(records) == 4
    for _ in range(2):
        shard = after.engine.control.shard
        outcome = shard.machine.outcome(records)
        shard.perform(lambda decided=outcome: decided)  # type: ignore[misc]
        after.settle()
        after.restart()
        assert after.engine.topics.image.scram == image.scram
        assert after.engine.topics.image.acls.by_id == image.acls.by_id
