"""What a web-config.yml may say: against promtool, and what is refused with which words."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.config.web_config import load_web_config
from memwatch.errors import ConfigError
from memwatch.outputs.http.client_access import CERTIFICATE, PASSWORD, TLS, AccessPolicy
from support.certificates import hashed, make_all
from support.needed import needs_program

ROOT = Path(__file__).resolve().parents[2]
HASH = hashed()
PAIR = "cert_file: server.crt, key_file: server.key"
needs_promtool = needs_program("promtool")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_all(tmp_path_factory.mktemp("certificates"))
    (made / "empty").touch()
    (made / "broken.crt").write_text((made / "server.crt").read_text()[:-200])
    return made


def written(folder: Path, text: str) -> Path:
    path = folder / "web-config.yml"
    path.write_text(text)
    return path


def promtool_takes(path: Path) -> bool:
    return subprocess.run(["promtool", "check", "web-config", path], capture_output=True, check=False).returncode == 0


def tls(more: str = "", pair: str = PAIR) -> str:
    return f"tls_server_config: {{{pair}{', ' if more else ''}{more}}}"


GOOD = {
    "": set(),
    "# nothing yet": set(),
    "tls_server_config:\nhttp_server_config:\nbasic_auth_users:": set(),
    tls(): {TLS},
    tls("client_auth_type: NoClientCert"): {TLS},
    tls("client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt"): {TLS},
    tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt"): {TLS, CERTIFICATE},
    tls("min_version: TLS13"): {TLS},
    tls("min_version: TLS12, max_version: TLS12, prefer_server_cipher_suites: false"): {TLS},
    tls("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]"): {TLS},
    tls("min_version: TLS13, cipher_suites: [TLS_AES_128_GCM_SHA256]"): {TLS},
    **({tls("curve_preferences: [X25519]"): {TLS}} if sys.version_info >= (3, 11) else {}),  # 3.10 has no way
    tls("curve_preferences: [CurveP256]"): {TLS},
    "http_server_config: {http2: false}": set(),
    "http_server_config: {headers: {X-XSS-Protection: 0, X-Frame-Options: deny}}": set(),
    "http_server_config: {headers: {X-Content-Type-Options: nosniff}}": set(),
    "http_server_config: {headers: {Content-Security-Policy: \"frame-ancestors 'none'\"}}": set(),
    f"basic_auth_users: {{alice: {HASH}, bob: {hashed('b')}}}": {PASSWORD},
    f"basic_auth_users: {{1: {HASH.replace('$2y$', '$2a$')}}}": {PASSWORD},
    f"{tls()}\nbasic_auth_users: {{alice: {HASH}}}": {TLS, PASSWORD},
}
ALL_CIPHERS = [
    f"TLS_{kind}_WITH_{cipher}"
    for kind in ("RSA", "ECDHE_RSA", "ECDHE_ECDSA")
    for cipher in ("AES_128_CBC_SHA", "AES_256_CBC_SHA", "AES_128_GCM_SHA256", "AES_256_GCM_SHA384")
] + ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"]
NEWER = {  # which Debian's promtool does not know yet
    tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: [a]"): {
        TLS,
        CERTIFICATE,
    },
    "rate_limit: {interval: 1s, burst: 20}": set(),
    "rate_limit: {interval: 1m2.5s, burst: 1}": set(),
    "rate_limit: {interval: 0}": set(),
}


@pytest.mark.parametrize(("text", "asks"), [*GOOD.items(), *NEWER.items()])
def test_what_is_accepted_and_what_it_asks(folder: Path, text: str, asks: set[str]) -> None:
    assert load_web_config(written(folder, text)).requirements == asks


@needs_promtool
@pytest.mark.parametrize("text", [*GOOD, tls(f"cipher_suites: [{', '.join(ALL_CIPHERS)}]")])
def test_what_is_accepted_is_accepted_by_promtool(folder: Path, text: str) -> None:
    path = written(folder, text)
    load_web_config(path)
    assert promtool_takes(path)


BAD_FOR_BOTH = {
    tls(pair="cert_file: server.crt"): "key_file: missing",
    tls(pair="key_file: server.key"): "cert_file: missing",
    tls(pair="client_auth_type: NoClientCert"): "cert_file: missing",
    tls(pair="cert_file: none.crt, key_file: server.key"): "cert_file is 'none.crt': No such file",
    tls(pair="cert_file: server.crt, key_file: ca.key"): "cert_file is 'server.crt': not a certificate and its key",
    tls(pair="cert_file: empty, key_file: server.key"): "not a certificate and its key",
    tls(pair="cert_file: broken.crt, key_file: server.key"): "not a certificate and its key",
    tls(pair="cert_file: server.crt, key_file: locked.key"): "the key is encrypted",
    tls("client_auth_type: Always"): "client_auth_type is 'Always': not known",
    tls("client_ca_file: ca.crt"): "client_ca_file: no client is asked for a certificate",
    tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: none.crt"): "No such file",
    tls("min_version: TLS14"): "min_version is 'TLS14': not known",
    tls("max_version: SSL30"): "max_version is 'SSL30': not known",
    tls("cipher_suites: [TLS_RC4]"): r"cipher_suites\[0\] is 'TLS_RC4': not known",
    tls("curve_preferences: [Curve25519]"): r"curve_preferences\[0\] is 'Curve25519': not known",
    tls("cert: {file: server.crt}"): "cert: not a text",
    tls("chiper_suites: []"): "there is no such key",
    "tls_config: {}": "there is no such key",
    "[]": "it holds no keys",
    "text": "it holds no keys",
    "tls_server_config: ]": "not YAML",
    "http_server_config: {headers: {X-Powered-By: memwatch}}": "not a header that can be set",
    "http_server_config: {headers: {x-frame-options: deny}}": "not a header that can be set",
    "http_server_config: {headers: {X-Frame-Options: allow}}": "'allow': not known",
    "http_server_config: {headers: {X-Content-Type-Options: sniff}}": "'sniff': not known",
    "http_server_config: {http2: maybe}": "neither true nor false",
    "basic_auth_users: [alice]": "not names with hashes",
    "basic_auth_users: {alice: secret}": "alice: not a bcrypt hash",
    "basic_auth_users: {alice: }": "alice: not a bcrypt hash",
    f"basic_auth_users: {{alice: {HASH[:-2]}}}": "alice: not a bcrypt hash",
    f"basic_auth_users: {{alice: {HASH.replace('$04$', '$03$')}}}": "a hash of cost 3",
    f"basic_auth_users: {{alice: {HASH.replace('$04$', '$32$')}}}": "a hash of cost 32",
    f"basic_auth_users: {{alice: {HASH}, alice: {HASH}}}": "given twice",
    "no_such_section: {}": "there is no such key",
}
STRICTER = {  # what Go takes and what would be less than it says, or could never work
    tls("client_auth_type: RequestClientCert"): "unverified certificates",
    tls("client_auth_type: RequireAnyClientCert"): "unverified certificates",
    tls("client_auth_type: RequireAndVerifyClientCert"): "there is no CA to verify",
    tls(
        "client_auth_type: RequireAndVerifyClientCert, client_ca_file: empty"
    ): "client_ca_file is 'empty': not a readable certificate",
    tls("client_auth_type: VerifyClientCertIfGiven, client_ca_file: broken.crt"): "not a readable certificate",
    tls(
        "client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt, client_allowed_sans: [a]"
    ): "may come without",
    tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: []"): "nobody",
    tls("min_version: TLS13, max_version: TLS12"): "above max_version",
    tls("min_version: TLS10"): "not known",
    tls("cipher_suites: [TLS_AES_128_GCM_SHA256]"): "all are of TLS 1.3",
    tls("curve_preferences: [X25519, CurveP256]"): "Python can set only one",
    tls(pair="min_version: TLS13"): "cert_file: missing",
    tls('cert: "-----BEGIN"'): "cert: given beside cert_file",
    'http_server_config: {headers: {X-XSS-Protection: "0\\r\\nSet-Cookie: a=b"}}': "not one line",
    'http_server_config: {headers: {Content-Security-Policy: "\\u00e9"}}': "not one line of ASCII",
    f"basic_auth_users: {{'a:b': {HASH}}}": "must not contain :",
    f"basic_auth_users: {{alice: {HASH.replace('$04$', '$16$')}}}": "a hash of cost 16",
    f"basic_auth_users: {{alice: {HASH[:28]}!{HASH[29:]}}}": "not a bcrypt hash",
    "rate_limit: {interval: 1s}": "burst is 0: no request would be answered",
    "rate_limit: {interval: soon, burst: 1}": "interval is 'soon': not a duration",
    "rate_limit: {interval: 5, burst: 1}": "not a duration",
    "rate_limit: {interval: 1s2, burst: 1}": "not a duration",
}


@pytest.mark.parametrize(("text", "problem"), [*BAD_FOR_BOTH.items(), *STRICTER.items()])
def test_what_is_refused_is_told_with_the_place_and_the_fix(folder: Path, text: str, problem: str) -> None:
    path = written(folder, text)
    with pytest.raises(ConfigError, match=problem) as refused:
        load_web_config(path)
    assert str(refused.value).startswith(f"{path}:1: ")
    assert refused.value.hint
    for secret in ("secret", HASH[7:20], "-----BEGIN"):
        assert secret not in f"{refused.value}{refused.value.hint}"


@needs_promtool
@pytest.mark.parametrize("text", BAD_FOR_BOTH)
def test_what_promtool_refuses_is_refused(folder: Path, text: str) -> None:
    assert not promtool_takes(written(folder, text)), "else it belongs to STRICTER"


VALUES = {  # of the keys of tls_server_config, right and wrong ones
    "client_auth_type": ["NoClientCert", "RequireAndVerifyClientCert", "VerifyClientCertIfGiven", "Other", ""],
    "client_ca_file": ["ca.crt", "none.crt", "empty"],
    "min_version": ["TLS12", "TLS13", "TLS10", "1.2"],
    "max_version": ["TLS12", "TLS13", "TLS11"],
    "cipher_suites": ["[]", "[TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]", "[TLS_AES_128_GCM_SHA256]", "[RC4]"],
    "curve_preferences": ["[]", "[CurveP521]", "[CurveP384, X25519]", "[secp256r1]"],
    "prefer_server_cipher_suites": ["true", "false", "maybe"],
}


@needs_promtool
@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()}))
def test_what_is_accepted_in_any_combination_is_accepted_by_promtool(folder: Path, section: dict[str, str]) -> None:
    path = written(folder, tls(", ".join(f"{key}: {value}" for key, value in section.items())))
    try:
        load_web_config(path)
    except ConfigError:
        return
    assert promtool_takes(path), path.read_text()


def test_certificates_may_stand_in_the_file(folder: Path) -> None:
    def block(key: str, name: str) -> str:
        return f"  {key}: |\n" + "".join(f"    {line}\n" for line in (folder / name).read_text().splitlines())

    text = (
        "tls_server_config:\n" + block("cert", "server.crt") + block("key", "server.key") + block("client_ca", "ca.crt")
    )
    access = load_web_config(written(folder, text + "  client_auth_type: RequireAndVerifyClientCert\n"))
    assert access.requirements == {TLS, CERTIFICATE}
    assert list(access.files) == [str(folder / "web-config.yml")]
    with pytest.raises(ConfigError, match="key: not a text"):
        load_web_config(written(folder, "tls_server_config: {cert_file: server.crt, key: 5}"))


def test_paths_count_from_the_folder_of_the_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "web-config.yml"
    path.write_text(tls(pair=f"cert_file: {folder / 'server.crt'}, key_file: server.key"))
    with pytest.raises(ConfigError, match=r"key_file is 'server\.key': No such file") as refused:
        load_web_config(path)
    assert str(tmp_path) in refused.value.hint
    shutil.copy(folder / "server.key", tmp_path)
    assert load_web_config(path).requirements == {TLS}


@pytest.mark.parametrize(("name", "problem"), [("none.yml", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        load_web_config(tmp_path / name)
    assert "--web-config" in refused.value.hint


def test_headers_are_whole_lines_and_nosniff_is_sent_once(folder: Path) -> None:
    text = (
        "http_server_config: {headers: {X-XSS-Protection: 0, X-Content-Type-Options: nosniff, X-Frame-Options: deny}}"
    )
    assert load_web_config(written(folder, text)).headers == "X-XSS-Protection: 0\r\nX-Frame-Options: deny\r\n"


def test_without_bcrypt_passwords_are_refused_with_what_to_install(folder: Path) -> None:
    path = written(folder, f"basic_auth_users: {{alice: {HASH}}}")
    code = f"""
import sys
from pathlib import Path
sys.modules["bcrypt"] = None
from memwatch.errors import ConfigError
from memwatch.config.web_config import load_web_config
try:
    load_web_config(Path({str(path)!r}))
except ConfigError as error:
    print(error, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ())
    assert "basic_auth_users: passwords cannot be checked" in done.stdout
    assert "pip install 'memwatch[auth]'" in done.stdout


@pytest.mark.parametrize(
    ("text", "absent"),
    [("", {"ssl", "hashlib", "bcrypt"}), (tls(), {"bcrypt"}), (f"basic_auth_users: {{alice: {HASH}}}", {"ssl"})],
    ids=["nothing", "TLS", "passwords"],
)
def test_only_what_is_asked_for_is_imported(folder: Path, text: str, absent: set[str]) -> None:
    path = written(folder, text)
    code = f"""
import sys
from pathlib import Path
from memwatch.config.web_config import load_web_config
load_web_config(Path({str(path)!r}))
print(*({{"ssl", "hashlib", "bcrypt", "http.client"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ())
    assert not (absent | {"http.client"}) & set(done.stdout.split())


def environ() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "watchdog"), "PATH": ""}


@needs_promtool
@pytest.mark.parametrize("commented", [True, False], ids=["as it is", "all of it"])
def test_the_example_is_accepted(folder: Path, tmp_path: Path, commented: bool) -> None:
    for kind in ("crt", "key"):
        shutil.copy(folder / f"server.{kind}", tmp_path / f"memwatch.{kind}")
    shutil.copy(folder / "ca.crt", tmp_path / "clients-ca.crt")
    text = (ROOT / "configs" / "web-config.yml").read_text()
    if not commented:
        text = uncommented(text).replace("$2y$10$...", HASH)
    path = written(tmp_path, text)
    access: AccessPolicy = load_web_config(path)
    assert access.requirements == ({TLS} if commented else {TLS, PASSWORD, CERTIFICATE})
    assert access.headers == "X-Frame-Options: deny\r\n"
    newer = ("client_allowed_sans", "rate_limit")
    path.write_text("\n".join(line for line in text.splitlines() if not line.strip().startswith(newer)))
    assert promtool_takes(path)


def uncommented(text: str) -> str:
    """With every setting that the example names."""
    lines = []
    for line in text.splitlines():
        bare = line.lstrip().removeprefix("# ")
        setting = bare.lstrip().split(":")[0].replace("_", "").isalpha() and ": " in f"{bare} "
        is_setting = line.lstrip().startswith("# ") and setting and bare.lstrip()[0].islower()
        lines.append(line.replace("# ", "", 1) if is_setting else line)
    return "\n".join(lines)
