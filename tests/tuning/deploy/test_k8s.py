"""`tune render k8s`: schemas, references within the manifests, and rules for safe pods."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import ROOT
from tests.tuning.deploy.kustomize import Manifest, build, read
from tests.tuning.deploy.manifests import (
    check_schema,
    containers,
    quantity,
    selects,
    templates,
)
from tuning.deploy.k8s import OVERLAYS
from tuning.submit.manifests import render_k8s

FILE = ROOT / "search_spaces" / "llm.yaml"
IMAGE = "registry.example.org/tune:0.1.0"
GPUS = f"cluster={{max_nodes: 8, min_nodes: 2, cpus: 8, gpus: 2, image: '{IMAGE}'}}"
CPUS = f"cluster={{max_nodes: 4, cpus: 4, image: '{IMAGE}'}}"
WINNER = {
    "learning_rate": 3e-3,
    "weight_decay": 0.1,
    "warmup_fraction": 0.1,
    "beta2": 0.95,
    "batch_size": 16,
}
GOLDEN = Path(__file__).with_name("golden")
ALERTS = {"rules.yml": "groups: []\n", "alertmanager.yml": "route: {}\n", "dashboard.json": "{}\n"}


def rendered(folder: Path, cluster: str = GPUS, overlays: tuple[str, ...] = OVERLAYS) -> Path:
    made = render_k8s(load_sweep(FILE, [cluster]), overlays, WINNER)
    alerts = {f"overlays/monitoring/{name}": text for name, text in ALERTS.items()}
    for name, text in (made | alerts).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def everything(folder: Path) -> Iterator[Manifest]:
    """The manifests with all overlays, the cluster alone, and each job for a winner."""
    yield from build(folder)
    yield from read(folder / "raycluster.yaml")
    for name in ("pytorchjob", "pytorchjob-single", "trainjob"):
        yield from read(folder / "final" / f"{name}.yaml")
    yield from build(folder / "final")


@pytest.fixture(scope="module", params=[GPUS, CPUS], ids=["gpus", "cpus"])
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return [*everything(rendered(tmp_path_factory.mktemp("k8s"), request.param))]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [m for m in manifests if m["kind"] == kind]


def pods(manifests: list[Manifest]) -> list[tuple[str, dict[str, Any]]]:
    """Namespace and template of each pod."""
    return [(m["metadata"].get("namespace", ""), t) for m in manifests for t in templates(m)]


def test_the_files_are_as_reviewed(tmp_path: Path) -> None:
    """After a change that is meant: UPDATE_GOLDEN=1, and look at the difference."""
    overlays = ("queue", "spot", "tls")
    made = render_k8s(load_sweep(FILE, [GPUS]), overlays, WINNER)
    shown = {name: text for name, text in made.items() if not name.endswith("llm.yaml")}
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for name, text in shown.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text, encoding="utf-8")
    there = {str(p.relative_to(GOLDEN)): p.read_text() for p in GOLDEN.rglob("*") if p.is_file()}
    assert shown == there
    assert made["base/llm.yaml"] == FILE.read_text(encoding="utf-8")


def test_schemas(manifests: list[Manifest]) -> None:
    for manifest in manifests:
        check_schema(manifest)


def test_schemas_find_a_misspelt_field(manifests: list[Manifest]) -> None:
    job = of_kind(manifests, "RayJob")[0]
    group = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    wrong = job["spec"]["rayClusterSpec"] | {"workerGroupSpecs": [group | {"maxReplica": 2}]}
    with pytest.raises(jsonschema.ValidationError, match="maxReplica"):
        check_schema(job | {"spec": job["spec"] | {"rayClusterSpec": wrong}})


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_builds_the_same(tmp_path: Path) -> None:
    folder = rendered(tmp_path)
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    theirs = {_key(m): m for m in YAML(typ="safe").load_all(done.stdout)}
    ours = {_key(m): m for m in build(folder)}
    assert theirs.keys() == ours.keys()
    for key in (k for k in ours if k[1] not in ("ConfigMap", "Deployment")):  # names get a hash
        assert theirs[key] == ours[key]


def _key(manifest: Manifest) -> tuple[str, ...]:
    metadata = manifest["metadata"]
    name = metadata["name"]
    if manifest["kind"] == "ConfigMap" and metadata["namespace"] == "monitoring":
        name = name.partition("-")[0]
    return manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), name


def test_selectors_find_pods(manifests: list[Manifest]) -> None:
    found = pods(manifests)

    def any_pod(namespace: str, selector: dict[str, Any]) -> bool:
        labels = [t["metadata"].get("labels", {}) for n, t in found if n == namespace]
        return any(selects(selector, each) for each in labels)

    for manifest in manifests:
        namespace, spec = manifest["metadata"].get("namespace", ""), manifest.get("spec", {})
        if manifest["kind"] == "Service":
            assert any_pod(namespace, {"matchLabels": spec["selector"]}), manifest["metadata"]
        if manifest["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            assert selects(spec["selector"], spec["template"]["metadata"]["labels"])
        if manifest["kind"] == "PodDisruptionBudget":
            assert any_pod(namespace, spec["selector"])
        if manifest["kind"] == "NetworkPolicy":
            assert any_pod(namespace, spec["podSelector"]), manifest["metadata"]
        if manifest["kind"] == "ServiceMonitor":
            services = of_kind(manifests, "Service")
            chosen = [
                s for s in services if selects(spec["selector"], s["metadata"].get("labels", {}))
            ]
            ports = {p["name"] for s in chosen for p in s["spec"]["ports"]}
            assert {e["port"] for e in spec["endpoints"]} <= ports


def test_service_ports_are_those_of_containers(manifests: list[Manifest]) -> None:
    found = pods(manifests)
    for service in of_kind(manifests, "Service"):
        labels = service["spec"]["selector"]
        chosen = [t for _, t in found if selects({"matchLabels": labels}, t["metadata"]["labels"])]
        for port in service["spec"]["ports"]:
            for template in chosen:
                named = {
                    p["name"]: p["containerPort"]
                    for c in containers(template)
                    for p in c.get("ports", [])
                }
                assert named[port["targetPort"]] == port["port"]


def test_mounted_volumes_exist_and_so_do_their_sources(manifests: list[Manifest]) -> None:
    claims, maps, accounts = (
        {(m["metadata"]["namespace"], m["metadata"]["name"]) for m in of_kind(manifests, kind)}
        for kind in ("PersistentVolumeClaim", "ConfigMap", "ServiceAccount")
    )
    own = {
        t["metadata"]["name"]
        for m in of_kind(manifests, "StatefulSet")
        for t in m["spec"]["volumeClaimTemplates"]
    }
    for namespace, template in pods(manifests):
        spec = template["spec"]
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        for container in containers(template):
            mounts = [m["name"] for m in container.get("volumeMounts", [])]
            assert set(mounts) <= volumes.keys() | own, container["name"]
            paths = [m["mountPath"] for m in container.get("volumeMounts", [])]
            assert len(paths) == len(set(paths))
        for volume in volumes.values():
            if claim := volume.get("persistentVolumeClaim"):
                assert (namespace, claim["claimName"]) in claims
            if config := volume.get("configMap"):
                assert (namespace, config["name"]) in maps
        assert (namespace, spec["serviceAccountName"]) in accounts


def test_secrets_are_named_only_and_documented(manifests: list[Manifest], tmp_path: Path) -> None:
    assert not of_kind(manifests, "Secret")
    text = (rendered(tmp_path) / "README.md").read_text(encoding="utf-8")
    for secret in {*_secrets(manifests)}:
        assert f"| `{secret}`" in text


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("secretKeyRef", "secretRef", "credentials"):
                yield inner["name"]
            elif key == "secret":
                yield inner["secretName"]
            else:
                yield from _secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner)


def test_pods_are_restricted(manifests: list[Manifest]) -> None:
    for _, template in pods(manifests):
        spec = template["spec"]
        named = template["metadata"]["labels"]["app.kubernetes.io/component"]
        assert spec["automountServiceAccountToken"] is False, named
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        if named != "dcgm-exporter":  # in a namespace with the level baseline
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] > 0
        for container in containers(template):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            _, _, tag = container["image"].rpartition(":")
            assert tag[:1].isdigit() or tag[:1] == "v", container["image"]
            if container["name"] != "node":  # the TrainJob has them
                assert "requests" in container["resources"]
            assert any(
                m["mountPath"] in ("/tmp", "/data", "/backups") for m in container["volumeMounts"]
            )
    accounts = of_kind(manifests, "ServiceAccount")
    assert all(a["automountServiceAccountToken"] is False for a in accounts)


def test_only_the_autoscaler_has_a_token(manifests: list[Manifest]) -> None:
    for _, template in pods(manifests):
        for container in containers(template):
            assert "api-token" not in [m["name"] for m in container.get("volumeMounts", [])]
    cluster = of_kind(manifests, "RayCluster")[0]["spec"]
    mounts = [m["name"] for m in cluster["autoscalerOptions"]["volumeMounts"]]
    there = {v["name"] for v in cluster["headGroupSpec"]["template"]["spec"]["volumes"]}
    assert "api-token" in mounts
    assert set(mounts) <= there


@pytest.mark.parametrize(
    ("client", "server", "port", "allowed"),
    [
        ("head", "worker", None, True),
        ("worker", "head", None, True),
        ("worker", "worker", None, True),
        ("final", "final", None, True),
        ("submitter", "head", 8265, True),
        ("head", "mlflow", 5000, True),
        ("final", "mlflow", 5000, True),
        ("mlflow", "postgres", 5432, True),
        ("backup", "postgres", 5432, True),
        ("worker", "postgres", 5432, False),
        ("submitter", "mlflow", 5000, False),
        ("mlflow", "head", 8265, False),
    ],
)
def test_network_lets_through_only_these(
    manifests: list[Manifest], client: str, server: str, port: int | None, allowed: bool
) -> None:
    ways = [("Egress", client, server), ("Ingress", server, client)]
    assert all(_allowed(manifests, *way, port) for way in ways) is allowed


def test_rules_of_the_network_for_all_pods_and_for_storage(manifests: list[Manifest]) -> None:
    policies = _policies(manifests)
    whole = [spec for spec in policies.values() if spec["podSelector"] == {}]
    assert any(s["policyTypes"] == ["Ingress", "Egress"] and len(s) == 2 for s in whole), "deny"
    assert policies["dns"] in whole
    ports = {
        name: {p["port"] for rule in policies[name]["egress"] for p in rule["ports"]}
        for name in ("dns", "storage")
    }
    assert ports["dns"] == {53}
    assert {443, 2049} <= ports["storage"], "object storage, NFS"
    for part in ("head", "worker", "final"):
        label = {"app.kubernetes.io/component": part}
        assert selects(policies["storage"]["podSelector"], label)


def _policies(manifests: list[Manifest]) -> dict[str, dict[str, Any]]:
    found = of_kind(manifests, "NetworkPolicy")
    ours = [p for p in found if p["metadata"]["namespace"] == "ray"]
    return {p["metadata"]["name"]: p["spec"] for p in ours}


def _allowed(manifests: list[Manifest], way: str, own: str, other: str, port: int | None) -> bool:
    label = "app.kubernetes.io/component"
    for spec in _policies(manifests).values():
        if not selects(spec["podSelector"], {label: own}):
            continue
        for rule in spec.get(way.lower(), []):
            peers = rule.get("to" if way == "Egress" else "from", [])
            ports = [p["port"] for p in rule.get("ports", [])]
            named = any(
                "namespaceSelector" not in p and selects(p["podSelector"], {label: other})
                for p in peers
            )
            if named and (not ports or port in ports):
                return True
    return False


def test_requests_fit_the_quota(manifests: list[Manifest]) -> None:
    hard = of_kind(manifests, "ResourceQuota")[0]["spec"]["hard"]
    job = of_kind(manifests, "RayJob")[0]["spec"]["rayClusterSpec"]
    group = job["workerGroupSpecs"][0]
    for key in ("cpu", "memory"):
        total = group["maxReplicas"] * _request(group["template"], key)
        total += quantity(job["autoscalerOptions"]["resources"]["requests"][key])
        rest = [
            t for n, t in pods(manifests) if n == "ray" and _component(t) not in ("worker", "final")
        ]
        once = {_component(t): t for t in rest}
        total += sum(_request(t, key) for t in once.values())
        assert total <= quantity(hard[f"requests.{key}"])
        (queue,) = of_kind(manifests, "ClusterQueue")
        flavors = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
        assert quantity(hard[f"requests.{key}"]) == quantity(
            next(r["nominalQuota"] for r in flavors if r["name"] == key)
        )
    claims = [
        c
        for c in of_kind(manifests, "PersistentVolumeClaim")
        if c["metadata"]["namespace"] == "ray"
    ]
    assert len(claims) + 1 <= int(hard["persistentvolumeclaims"])


def _component(template: dict[str, Any]) -> str:
    return str(template["metadata"]["labels"]["app.kubernetes.io/component"])


def _request(template: dict[str, Any], key: str) -> float:
    return sum(quantity(c["resources"]["requests"][key]) for c in template["spec"]["containers"])


def test_gpus_where_machines_have_them(manifests: list[Manifest]) -> None:
    group = of_kind(manifests, "RayJob")[0]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    has = "nvidia.com/gpu" in limits
    assert has == ("nodeSelector" in group["template"]["spec"])
    assert has == (
        "requests.nvidia.com/gpu" in of_kind(manifests, "ResourceQuota")[0]["spec"]["hard"]
    )
    if has:
        assert limits["nvidia.com/gpu"] == "2"
        assert (group["minReplicas"], group["maxReplicas"]) == (2, 8)


def test_volume_service_and_namespaces_are_as_asked(manifests: list[Manifest]) -> None:
    claims = [m["spec"] for m in of_kind(manifests, "PersistentVolumeClaim")]
    (sweeps,) = [c for c in claims if c["accessModes"] == ["ReadWriteMany"]]
    assert sweeps["resources"]["requests"]["storage"] == "1Ti"
    (encrypted,) = of_kind(manifests, "StorageClass")
    assert sweeps["storageClassName"] == encrypted["metadata"]["name"]
    assert encrypted["parameters"]["encrypted"] == "true"
    services = {m["metadata"]["name"]: m["spec"] for m in of_kind(manifests, "Service")}
    head = [s for s in services.values() if 8265 in [p["port"] for p in s["ports"]]]
    assert [s["type"] for s in head] == ["ClusterIP"], "dashboard and jobs"
    level = "pod-security.kubernetes.io/enforce"
    levels = {
        m["metadata"]["name"]: m["metadata"]["labels"] for m in of_kind(manifests, "Namespace")
    }
    assert (levels["ray"][level], levels["monitoring"][level]) == ("restricted", "baseline")
    deployed = {_component(t) for n, t in pods(manifests) if n == "monitoring"}
    assert {"prometheus", "alertmanager", "grafana", "dcgm-exporter"} <= deployed
    (backup,) = of_kind(manifests, "CronJob")
    assert "KEEP" in str(backup["spec"]), "retention"


def test_jobs_for_the_winner_have_the_variables_of_the_reference(tmp_path: Path) -> None:
    digits = load_sweep(ROOT / "search_spaces" / "digits.yaml", [GPUS, "resources.workers=4"])
    winner = {"learning_rate": 0.01, "batch_size": 64, "hidden_units": 64, "num_layers": 2}
    made = render_k8s(digits, (), winner | {"weight_decay": 0.0001, "dropout": 0.1})
    names = {"EPOCHS", "BATCH_SIZE", "LEARNING_RATE", "OUTPUT_DIR", "MASTER_ADDR", "MASTER_PORT"}
    names |= {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME"}
    for name in ("pytorchjob", "pytorchjob-single"):
        job = YAML(typ="safe").load(made[f"final/{name}.yaml"])
        for group in job["spec"]["pytorchReplicaSpecs"].values():
            env = group["template"]["spec"]["containers"][0]["env"]
            assert names <= {each["name"] for each in env}


def refused(file: Path, *changes: str) -> list[str]:
    with pytest.raises(UserError) as error:
        render_k8s(load_sweep(file, changes), (), None)
    return list(error.value.problems)


def test_what_cannot_be_rendered_is_a_line_each(tmp_path: Path) -> None:
    (line,) = refused(FILE)
    assert "llm.yaml: needs cluster.max_nodes, like" in line
    assert refused(FILE, "cluster={max_nodes: 2}") == [
        "llm.yaml: needs cluster.image, like example.org/tune:1.0"
    ]
    (line,) = refused(FILE, GPUS, "resources.workers=80")
    assert "the cluster has 64 CPUs + 16 GPUs on 8 machines" in line
    textfile = "monitoring.textfile=/var/lib/metrics"
    (line,) = refused(FILE, GPUS, textfile)
    assert line.startswith("cannot be rendered: monitoring.textfile")
    (line,) = refused(FILE, GPUS, f"name={'x' * 41}")
    assert "Kubernetes takes 40 characters at most" in line


def test_a_file_that_needs_its_own_scripts_brings_them(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("def loop(config):\n    pass\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntrainable: loop.py:loop\nmetric: loss\nspace: {a: {uniform: [0, 1]}}\n"
        "scheduler: {name: none}\nbudget: {trials: 2}\ntracking: {uri: '${TRACKER}'}\n"
    )
    os.environ["TRACKER"] = "http://tracker"
    try:
        made = render_k8s(load_sweep(tmp_path / "mine.yaml", [GPUS]), (), None)
    finally:
        del os.environ["TRACKER"]
    assert "files: [mine.yaml, loop.py]" in made["base/kustomization.yaml"]
    assert made["base/loop.py"].startswith("def loop")
    assert '--from-literal=TRACKER="$TRACKER"' in made["README.md"]
    assert "tracking.uri" not in made["base/rayjob.yaml"]


def test_dockerfile_is_pinned_and_has_what_kuberay_calls() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    bases = [line.split()[1] for line in text.splitlines() if line.startswith("FROM")]
    assert len(bases) == 2
    assert all(base.count(".") == 2 and "latest" not in base for base in bases)
    assert "wget" in text
    assert text.rstrip().splitlines()[-3] == "USER 1000:1000"
    for line in text.splitlines():
        if line.startswith("COPY") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line
