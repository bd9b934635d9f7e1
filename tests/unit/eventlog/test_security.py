"""What Kafka's listeners ask of clients: read from variables, and told to both kinds of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs import modules
from headwater.eventlog.security import KafkaSecurity

PEM = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
LOGIN = {"HEADWATER_KAFKA_USER": "ada", "HEADWATER_KAFKA_PASSWORD": 'a"b\\c'}


def of(protocol: str, **more: str) -> KafkaSecurity:
    return KafkaSecurity.from_environment({"HEADWATER_KAFKA_SECURITY": protocol, **more})


def test_a_kafka_that_asks_nothing_is_told_nothing() -> None:
    assert KafkaSecurity.from_environment({"HEADWATER_KAFKA_PASSWORD": ""}) == KafkaSecurity()
    assert (KafkaSecurity().for_librdkafka(), KafkaSecurity().for_java()) == ({}, {})


def test_a_password_is_told_to_both_and_shown_to_nobody() -> None:
    security = of("SASL_PLAINTEXT", HEADWATER_KAFKA_MECHANISM="PLAIN", **LOGIN)
    assert security.for_librdkafka() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": 'a"b\\c',
    }
    java = security.for_java()
    assert (java["security.protocol"], java["sasl.mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")
    assert java["sasl.jaas.config"].endswith(r'PlainLoginModule required username="ada" password="a\"b\\c";')
    assert "a\\" not in repr(security)


def test_files_are_read_and_their_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "any.pem"
    file.write_text(PEM)
    assert of("SSL").for_java() == {"security.protocol": "SSL"}  # whom the system trusts
    trusting = of("SSL", HEADWATER_KAFKA_CA=str(file))
    assert trusting.for_librdkafka() == {"security.protocol": "SSL", "ssl.ca.pem": PEM}
    assert trusting.for_java()["ssl.truststore.certificates"] == PEM
    names = ("HEADWATER_KAFKA_CERTIFICATE", "HEADWATER_KAFKA_KEY")
    known = of("SASL_SSL", **LOGIN, **dict.fromkeys(names, str(file)))
    assert known.for_librdkafka()["ssl.key.pem"] == PEM
    assert known.for_java()["ssl.keystore.certificate.chain"] == PEM
    assert known.for_java()["sasl.mechanism"] == "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"HEADWATER_KAFKA_SECURITY": "TLS"}, "HEADWATER_KAFKA_SECURITY"),
        ({"HEADWATER_KAFKA_SECURITY": "SASL_SSL"}, "HEADWATER_KAFKA_USER"),
        ({"HEADWATER_KAFKA_SECURITY": "SASL_SSL", "HEADWATER_KAFKA_USER": "ada"}, "HEADWATER_KAFKA_PASSWORD"),
        ({"HEADWATER_KAFKA_SECURITY": "SASL_SSL", "HEADWATER_KAFKA_MECHANISM": "GSSAPI"}, "HEADWATER_KAFKA_MECHANISM"),
        ({"HEADWATER_KAFKA_USER": "ada"}, "HEADWATER_KAFKA_USER"),
        ({"HEADWATER_KAFKA_SECURITY": "SSL", **LOGIN}, "HEADWATER_KAFKA_USER"),
        ({"HEADWATER_KAFKA_SECURITY": "SASL_PLAINTEXT", **LOGIN, "HEADWATER_KAFKA_CA": "ca"}, "HEADWATER_KAFKA_CA"),
        ({"HEADWATER_KAFKA_SECURITY": "SSL", "HEADWATER_KAFKA_CA": "no such file"}, "HEADWATER_KAFKA_CA"),
        ({"HEADWATER_KAFKA_SECURITY": "SSL", "HEADWATER_KAFKA_CA": modules.__file__}, "no line that starts with"),
    ],
)
def test_what_is_missing_wrong_or_of_no_use_is_named(variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError, match=named) as told:
        KafkaSecurity.from_environment(variables)
    assert LOGIN["HEADWATER_KAFKA_PASSWORD"] not in str(told.value)


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    file = tmp_path / "any.pem"
    file.write_text(PEM)
    with pytest.raises(SettingError, match="HEADWATER_KAFKA_KEY"):
        of("SSL", HEADWATER_KAFKA_CERTIFICATE=str(file))
    with pytest.raises(SettingError, match="HEADWATER_KAFKA_CERTIFICATE"):
        of("SSL", HEADWATER_KAFKA_KEY=str(file))
