"""The manifests: as kubectl builds them, valid, no more permitted than they need, and of one piece with memwatch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwatch import __version__
from memwatch.config.load import load_config
from memwatch.config.settings import Config
from memwatch.core.text_and_units import parse_size
from memwatch.outputs.http.routes import ROUTES
from support.needed import needs_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs" / "kubernetes"
KUBECTL = Path(sys.executable).with_name("kubectl")
SCHEMA = ROOT / ".venv" / "schema"
OLDEST, LATEST = "1.29", "1.37"  # the first with sidecars, and the latest whose schema is here
BUILT = ("job", "daemonset", "monitoring")

Manifest = dict[str, Any]

pytestmark = pytest.mark.skipif(not KUBECTL.exists(), reason="needs kubectl: pip install -r requirements-dev.txt")
needs_promtool = needs_program("promtool")


def kustomized(folder: Path) -> list[Manifest]:
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@cache
def built(name: str) -> list[Manifest]:
    return kustomized(FOLDER / name)


def one(manifests: list[Manifest], kind: str, name: str | None = None) -> Manifest:
    [found] = [each for each in manifests if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def pod(name: str) -> Manifest:
    return one(built(name), {"job": "Job", "daemonset": "DaemonSet"}[name])["spec"]["template"]


def memwatch(name: str) -> Manifest:
    spec = pod(name)["spec"]
    [found] = [each for each in (*spec["containers"], *spec.get("initContainers", ())) if each["name"] == "memwatch"]
    return found


def config(name: str, folder: Path) -> Config:
    path = folder / "memwatch.yaml"
    path.write_text(one(built(name), "ConfigMap")["data"]["memwatch.yaml"])
    return load_config(path)


def overlay(folder: Path, text: str, **files: str) -> list[Manifest]:
    """What a user's own kustomization makes of these."""
    shutil.copytree(FOLDER, folder / "kubernetes")
    own = folder / "kubernetes" / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(text)
    for name, manifest in files.items():
        (own / f"{name}.yaml").write_text(manifest)
    return kustomized(own)


def mappings(value: object) -> Iterator[Manifest]:
    """Every mapping in it, however deep."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


either = pytest.mark.parametrize("name", ["job", "daemonset"])

# --- valid ------------------------------------------------------------------------------------------------------------


def complaint(manifest: Manifest, version: str) -> str:
    validate = pytest.importorskip("kubernetes_validate")
    try:
        validate.validate(manifest, version, strict=True)
    except validate.ValidationError as error:
        return str(error.message)
    return ""


@either
@pytest.mark.parametrize("version", [OLDEST, LATEST])
def test_kubernetes_knows_every_key(name: str, version: str) -> None:
    assert [complaint(manifest, version) for manifest in built(name)] == [""] * len(built(name))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda spec: spec.update(shareProcessNamespaces=True),
        lambda spec: spec["initContainers"][0].update(livenessProb={}),
        lambda spec: spec["initContainers"][0]["resources"]["limits"].update(memory=[]),
    ],
    ids=["pod", "container", "value"],
)
def test_a_key_that_is_misspelt_is_found(spoil: Callable[[Manifest], None]) -> None:
    job = json.loads(json.dumps(one(built("job"), "Job")))
    spoil(job["spec"]["template"]["spec"])
    assert complaint(job, LATEST)


def compiled(manifests: list[Manifest], folder: Path) -> str:
    """What the compiler says of them, by the types that are made from the operator's own definitions."""
    types = SCHEMA / "node_modules" / "@kubernetes-models" / "prometheus-operator" / "monitoring.coreos.com" / "v1"
    if not types.exists() or shutil.which("node") is None:
        pytest.skip("needs the types of the Prometheus operator: make tools")
    program = folder / "monitoring.ts"
    program.write_text(
        "".join(
            f'import {{ I{each["kind"]} }} from "{types}";\n'
            f"export const one{i}: I{each['kind']} = {json.dumps(each, indent=1)};\n"
            for i, each in enumerate(manifests)
        )
    )
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")
    tsc = SCHEMA / "node_modules" / ".bin" / "tsc"
    done = subprocess.run([tsc, *options, program], capture_output=True, text=True, check=False, cwd=folder)
    return done.stdout + done.stderr


def operators() -> list[Manifest]:
    return [each for each in built("monitoring") if each["apiVersion"] == "monitoring.coreos.com/v1"]


def test_the_operator_knows_every_key(tmp_path: Path) -> None:
    assert {each["kind"] for each in operators()} == {"PodMonitor", "PrometheusRule"}
    assert compiled(operators(), tmp_path) == ""


def test_one_that_it_does_not_know_is_found(tmp_path: Path) -> None:
    spoiled = json.loads(json.dumps(operators()).replace("targetLabel", "targetLabels"))
    assert "'\"targetLabels\"' does not exist" in compiled(spoiled, tmp_path)


# --- no more than it needs --------------------------------------------------------------------------------------------


def test_no_gpu_is_ever_asked_for(tmp_path: Path) -> None:
    with_gpus = overlay(tmp_path, "resources: [../daemonset]\ncomponents: [../nvidia]")
    assert one(with_gpus, "DaemonSet")["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    asked = [each["resources"] for each in mappings([with_gpus, *map(built, BUILT)]) if "resources" in each]
    assert asked
    assert {key for each in asked for part in each.values() for key in part} == {"cpu", "memory"}


@either
def test_its_root_is_read_only_and_it_gains_nothing(name: str) -> None:
    context = memwatch(name)["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert "privileged" not in context and context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["capabilities"]["drop"] == ["ALL"]


def test_the_sidecar_is_the_trainers_user_without_a_capability() -> None:
    context = memwatch("job")["securityContext"]
    assert context["runAsNonRoot"] and "runAsUser" not in context and "add" not in context["capabilities"]
    spec = pod("job")["spec"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert all("runAsUser" not in each.get("securityContext", {}) for each in spec["containers"])
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)
    assert all("hostPath" not in volume for volume in spec["volumes"])


def test_the_daemonset_has_these_capabilities_and_no_token() -> None:
    spec = pod("daemonset")["spec"]
    assert memwatch("daemonset")["securityContext"]["capabilities"]["add"] == ["KILL", "SYS_PTRACE", "DAC_READ_SEARCH"]
    assert spec["hostPID"] and not {"hostNetwork", "hostIPC", "priorityClassName"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert one(built("daemonset"), "ServiceAccount")["automountServiceAccountToken"] is False
    writable = {each["name"] for each in memwatch("daemonset")["volumeMounts"] if not each.get("readOnly")}
    paths = {
        volume["hostPath"]["path"]: volume["name"] in writable for volume in spec["volumes"] if "hostPath" in volume
    }
    assert paths == {"/var/lib/memwatch": True, "/var/log/containers": False, "/var/log/pods": False}
    level = one(built("daemonset"), "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"


def test_a_guaranteed_pod_stays_one() -> None:
    resources = memwatch("job")["resources"]
    assert resources["requests"] == resources["limits"] and set(resources["limits"]) == {"cpu", "memory"}


@either
def test_an_examination_fits_and_what_is_used_is_what_was_asked_for(name: str, tmp_path: Path) -> None:
    resources = memwatch(name)["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    own = 80 << 20  # memwatch with its GPU helper, TLS and passwords
    limit = parse_size(f"{resources['limits']['memory']}B")
    assert parse_size(str(config(name, tmp_path).diagnosis.memory)) + own <= limit


# --- of one piece -----------------------------------------------------------------------------------------------------


@either
def test_memwatch_takes_its_configuration(name: str, tmp_path: Path) -> None:
    read = config(name, tmp_path)
    assert bool(read.target.match) == (name == "job") and bool(read.node.trainers) == (name == "daemonset")
    [port] = memwatch(name)["ports"]
    assert read.listen_address == ("0.0.0.0", port["containerPort"]) and port["name"] == "memwatch"
    spec = pod(name)["spec"]
    [volume] = [each["name"] for each in spec["volumes"] if "configMap" in each]
    [mount] = [each for each in memwatch(name)["volumeMounts"] if each["name"] == volume]
    assert mount["mountPath"] == "/etc/memwatch" and "subPath" not in mount, "a change of a subPath is never seen"


def test_what_the_image_runs_is_what_the_manifests_mount() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert json.loads(re.findall(r"^CMD (.*)", dockerfile, re.MULTILINE)[-1])[-1] == "/etc/memwatch/memwatch.yaml"
    assert "XDG_STATE_HOME=/var/lib" in dockerfile
    for name in ("job", "daemonset"):
        assert not {"command", "args"} & set(memwatch(name))
        assert {"name": "MEMWATCH_CONFIG", "value": "/etc/memwatch/memwatch.yaml"} in memwatch(name)["env"]
        assert "/var/lib/memwatch" in {each["mountPath"] for each in memwatch(name)["volumeMounts"]}


@either
def test_every_mount_has_its_volume_and_every_volume_its_source(name: str) -> None:
    spec = pod(name)["spec"]
    volumes = {each["name"] for each in spec["volumes"]}
    mounted = {m["name"] for each in mappings(spec) for m in each.get("volumeMounts", ())}
    assert mounted == volumes and len(volumes) == len(spec["volumes"])
    maps = {each["metadata"]["name"] for each in built(name) if each["kind"] == "ConfigMap"}
    assert {each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each} == maps


@either
def test_probes_ask_for_pages_that_are_there_and_a_sidecar_is_never_unready(name: str) -> None:
    container = memwatch(name)
    probes = {key: value["httpGet"] for key, value in container.items() if key.endswith("Probe")}
    assert set(probes) == {"livenessProbe"} | ({"readinessProbe"} if name == "daemonset" else set())
    assert all(probe["path"] in ROUTES and probe["port"] == "memwatch" for probe in probes.values())
    assert probes["livenessProbe"]["path"] == "/-/healthy"


def test_the_sidecar_ends_with_the_trainer_and_knows_its_limit() -> None:
    container, spec = memwatch("job"), pod("job")["spec"]
    assert container in spec["initContainers"] and container["restartPolicy"] == "Always"
    assert spec["shareProcessNamespace"] is True
    [variable] = [each for each in container["env"] if "valueFrom" in each]
    field = variable["valueFrom"]["resourceFieldRef"]
    assert field == {"containerName": "trainer", "resource": "limits.memory"}
    assert "trainer" in {each["name"] for each in spec["containers"]}
    read = load_config(environ={variable["name"]: str(64 << 30)})  # bytes, as the kubelet writes it
    assert read.memory.limit_bytes == 64 << 30


def test_log_and_checkpoints_are_at_the_same_path_for_both(tmp_path: Path) -> None:
    [trainer] = pod("job")["spec"]["containers"]
    [theirs] = [each for each in trainer["volumeMounts"] if each["name"] == "runs"]
    [ours] = [each for each in memwatch("job")["volumeMounts"] if each["name"] == "runs"]
    assert ours == {**theirs, "readOnly": True}
    log = str(config("job", tmp_path).log.path)
    assert log.startswith(f"{ours['mountPath']}/") and log in trainer["args"][0]
    assert trainer["workingDir"] == theirs["mountPath"]


def test_the_trainers_line_keeps_its_status_its_output_and_its_signals(tmp_path: Path) -> None:
    [trainer] = pod("job")["spec"]["containers"]
    (tmp_path / "main.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', file=sys.stderr), sys.exit(7)))\n"
        "print('Epoch 1/3')\nos.kill(os.getppid(), 0)\nsignal.pause()\n"
    )
    line = trainer["args"][0].replace("/app/", f"{tmp_path}/").replace("/runs/", f"{tmp_path}/")
    assert line.count(str(tmp_path)) == 2
    command = [*trainer["command"], line.replace("python ", f"{sys.executable} ")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "Epoch 1/3\n"
        argv = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert argv[0].decode() == sys.executable, "Python itself is the container's main process"
        assert re.search(config("job", tmp_path).target.match or "-", " ".join(map(bytes.decode, argv)))
        process.terminate()
        assert process.stdout.read() == "saved\n"
    assert process.returncode == 7
    assert (tmp_path / "main.log").read_text() == "Epoch 1/3\nsaved\n"


WORKLOAD = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, labels: {labels}}}
spec:
  selector: {{matchLabels: {{app: trainer}}}}
  template:
    metadata: {{labels: {{app: trainer}}}}
    spec:
      containers: [{{name: trainer, image: trainer}}]
      volumes: [{{name: runs, persistentVolumeClaim: {{claimName: runs}}}}]
"""


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_it_comes_to_what_has_the_label_and_to_nothing_else(kind: str, tmp_path: Path) -> None:
    labelled = WORKLOAD.format(kind=kind, name="a", labels="{app.kubernetes.io/component: trainer}")
    other = WORKLOAD.format(kind=kind, name="b", labels="{}")
    text = "resources: [a.yaml, b.yaml]\ncomponents: [../sidecar]"
    manifests = overlay(tmp_path, text, a=labelled, b=other)
    spec = one(manifests, kind, "a")["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["memwatch"]
    assert {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}} in spec["volumes"]
    assert one(manifests, kind, "b")["spec"]["template"] == yaml.safe_load(other)["spec"]["template"]


def test_beside_a_trainer_of_roots_it_is_root_and_may_look_and_nothing_else(tmp_path: Path) -> None:
    manifests = overlay(tmp_path, "resources: [../job]\ncomponents: [../root]")
    [container] = one(manifests, "Job")["spec"]["template"]["spec"]["initContainers"]
    before = memwatch("job")["securityContext"]
    gained = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}}
    assert container["securityContext"] == before | gained
    assert [complaint(each, LATEST) for each in manifests] == [""] * len(manifests)


def test_where_no_capability_may_be_added_it_is_root_with_those_of_the_trainer(tmp_path: Path) -> None:
    """As docs/kubernetes.md says for the level `baseline`."""
    overlay(tmp_path, "resources: [../job]\ncomponents: [../root]")
    user = tmp_path / "kubernetes" / "root" / "user.yaml"
    kept, told, _ = user.read_text().partition("capabilities:")
    user.write_text(f"{kept}{told} null\n")
    [container] = one(kustomized(tmp_path / "kubernetes" / "own"), "Job")["spec"]["template"]["spec"]["initContainers"]
    assert "capabilities" not in container["securityContext"] and container["securityContext"]["runAsUser"] == 0


@either
def test_the_example_is_of_this_version(name: str) -> None:
    assert memwatch(name)["image"] == f"registry.example.org/memwatch:{__version__}"


# --- monitoring -------------------------------------------------------------------------------------------------------


def test_both_kinds_of_pods_are_scraped() -> None:
    spec = one(built("monitoring"), "PodMonitor")["spec"]
    [expression], [endpoint] = spec["selector"]["matchExpressions"], spec["podMetricsEndpoints"]
    assert expression == {"key": "memwatch", "operator": "Exists"} and endpoint["port"] == "memwatch"
    assert {pod(name)["metadata"]["labels"]["memwatch"] for name in ("job", "daemonset")} == {"sidecar", "daemonset"}


def test_prometheus_alone_is_let_in() -> None:
    policy = one(built("daemonset"), "NetworkPolicy")["spec"]
    labels = pod("daemonset")["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels and policy["policyTypes"] == ["Ingress", "Egress"]
    [rule] = policy["ingress"]
    assert rule["ports"] == [{"port": "memwatch"}] and "egress" not in policy
    [source] = rule["from"]
    namespace = source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert namespace == one(built("monitoring"), "PodMonitor")["metadata"]["namespace"]


def test_beside_a_trainer_prometheus_alone_is_let_in_and_ranks_meet_as_before() -> None:
    policy = one(built("job"), "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod("job")["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    guarded, others = policy["ingress"]
    [port] = guarded["ports"]
    assert port == {"port": memwatch("job")["ports"][0]["containerPort"]}
    [source] = guarded["from"]
    namespace = source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert namespace == one(built("monitoring"), "PodMonitor")["metadata"]["namespace"]
    is_open = {
        protocol: {
            number
            for one in others["ports"]
            if one.get("protocol", "TCP") == protocol
            for number in range(one["port"], one["endPort"] + 1)
        }
        for protocol in ("TCP", "UDP")
    }
    assert "from" not in others and is_open["TCP"] == set(range(1, 65536)) - {port["port"]}
    assert is_open["UDP"] == set(range(1, 65536))


def test_the_example_in_one_file_is_the_example() -> None:
    text = (FOLDER / "trainer-with-memwatch.yaml").read_text()
    assert list(yaml.safe_load_all(text)) == built("job"), "make manifests"


def test_the_rules_are_those_that_are_tested() -> None:
    rules = yaml.safe_load((ROOT / "configs" / "prometheus" / "memwatch.rules.yml").read_text())
    assert one(built("monitoring"), "PrometheusRule")["spec"] == rules, "make manifests"


@needs_promtool
def test_promtool_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(one(built("monitoring"), "PrometheusRule")["spec"]))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_gets_every_dashboard_and_each_fits() -> None:
    maps = [each for each in built("monitoring") if each["kind"] == "ConfigMap"]
    assert all(each["metadata"]["labels"] == {"grafana_dashboard": "1"} for each in maps)
    given = {name: text for each in maps for name, text in each["data"].items()}
    files = (ROOT / "configs" / "grafana" / "dashboards").glob("*.json")
    assert given == {path.name: path.read_text() for path in files}
    assert all(len(json.dumps(each)) < 1 << 18 for each in maps), "kubectl apply keeps it in an annotation of 256 KiB"
