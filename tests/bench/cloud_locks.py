"""Kubernetes and S3 on this machine, and the locks in them that are compared."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from idle import certificate
from locks import DEBIAN_PYTHON, DlockAt, Etcd, Lock
from stage import free_port, until
from start import TRUE

SERVERS = Path(__file__).resolve().parents[2] / "build/cloud-servers"
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
# A command that ends the script it runs under, but not what that holds.
DEATH = ["sh", "-c", "kill -9 $PPID"]

KUBECTL_LOOP = """
name=$1
shift
until kubectl create configmap "$name" >/dev/null 2>&1; do sleep 1; done
"$@"
status=$?
kubectl delete configmap "$name" >/dev/null
exit $status
"""

# curl before 8 does not send by itself the hash of the body, which is empty.
CURL_LOOP = """
object=$1/locks/$2
shift 2
s3() {
  curl -sf --aws-sigv4 aws:amz:us-east-1:s3 -u test:secret -H "x-amz-content-sha256: $empty" "$@"
}
empty=$(sha256sum </dev/null | cut -d ' ' -f 1)
until s3 -X PUT -H 'If-None-Match: *' "$object" >/dev/null; do sleep 1; done
"$@"
status=$?
s3 -X DELETE "$object"
exit $status
"""

# This client takes a Lease as lock-run-cmd does by the leader election of client-go: it reads the
# Lease, creates or replaces it under its resourceVersion, and at the end reads it again and takes its
# name out. It asks each second, lock-run-cmd every 5 to 11. It does not renew: hence the long lease.
LEASE = """
import http.client, json, os, ssl, subprocess, sys, time
from datetime import datetime, timezone
port, ca, token, name = sys.argv[1:5]
PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
server = http.client.HTTPSConnection("127.0.0.1", int(port),
                                     context=ssl.create_default_context(cafile=ca))
def ask(method, path, lease=None):
    server.request(method, path, json.dumps(lease), {
        "Authorization": "Bearer " + token, "Content-Type": "application/json"})
    answer = server.getresponse()
    return answer.status, json.load(answer)
def write(lease, holder, seconds):
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease["spec"] = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now,
                     "renewTime": now}
    if "resourceVersion" in lease["metadata"]:
        return ask("PUT", f"{PATH}/{name}", lease)[0] == 200
    return ask("POST", PATH, lease)[0] == 201
seen, since = None, 0
def take():
    global seen, since
    status, lease = ask("GET", f"{PATH}/{name}")
    if status == 404:
        lease = {"metadata": {"name": name}, "spec": {}}
    elif lease["metadata"]["resourceVersion"] != seen:
        seen, since = lease["metadata"]["resourceVersion"], time.monotonic()
    held = lease["spec"].get("holderIdentity")
    if held and time.monotonic() < since + lease["spec"]["leaseDurationSeconds"]:
        return False
    return write(lease, f"{os.uname().nodename}-{os.getpid()}", 300)
while not take():
    time.sleep(1)
status = subprocess.call(sys.argv[5:])
write(ask("GET", f"{PATH}/{name}")[1], "", 1)
sys.exit(status)
"""
IMPORTS = LEASE.split("from")[0] + "subprocess.call(sys.argv[2:])"  # after a key


class Client(Lock):
    """A script, and how the server's log names its requests."""

    def __init__(self, name, start, logged):
        self.name, self.start, self.logged = name, start, logged

    def argv(self, key, command, wait):
        return [*self.start, key, *command]

    def hold(self, stage, key):
        """Leaves the lock held, without a process that would send requests for it."""
        process = stage.start(self.argv(key, DEATH, wait=True))
        process.wait(timeout=30)
        stage.end(process)


class Dlock(DlockAt):
    def __init__(self, stage, name, url, logged, start=()):
        super().__init__(stage, name, url)
        self.start, self.logged = start, logged

    def argv(self, key, command, wait):
        return [*self.start, *super().argv(key, command, wait)]

    def hold(self, stage, key):
        stage.run([*self.start, stage.dlock, "acquire", "-q", "-t", "1h", "-n",
                   "--server", self.url, "-k", key])


class Kubernetes:
    """An API server over etcd, which logs a line when it receives a request, and more later. The
    token of each user is the user's name."""

    each = '"stage":"RequestReceived"'

    def __init__(self, stage):
        self.stage, self.port, self.log = stage, free_port(), stage.path("audit.log")
        key, self.ca = certificate(stage, "kubernetes")
        tokens = stage.script("tokens", "".join(f"{user},{user},{user},system:masters\n"
                                                for user in ("pod", "outside", "loop", "lease")))
        policy = stage.script("policy", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n"
                                        "- {level: Metadata, userGroups: ['system:masters']}\n")
        stage.start([SERVERS / "kube-apiserver", f"--etcd-servers={Etcd(stage).url}",
                     "--bind-address=127.0.0.1", f"--secure-port={self.port}",
                     f"--tls-cert-file={self.ca}", f"--tls-private-key-file={key}",
                     f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
                     "--service-account-issuer=https://127.0.0.1",
                     f"--service-account-key-file={self.ca}",
                     f"--service-account-signing-key-file={key}",
                     "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
                     "--disable-admission-plugins=ServiceAccount", "--anonymous-auth=false",
                     f"--audit-policy-file={policy}", f"--audit-log-path={self.log}"])
        Path(stage.path(".kube")).mkdir()
        self.token_file = stage.script("pod.token", "pod")
        stage.script(".kube/config", json.dumps({
            "kind": "Config", "apiVersion": "v1", "current-context": "loop",
            "clusters": [{"name": "here", "cluster": {"server": f"https://127.0.0.1:{self.port}",
                                                      "certificate-authority": self.ca}}],
            "contexts": [{"name": user, "context": {"cluster": "here", "user": user}}
                         for user in ("outside", "loop")],
            "users": [{"name": user, "user": {"token": user}} for user in ("outside", "loop")]}))
        until(self.answers, "kube-apiserver", seconds=60, pause=0.1)

    def answers(self):
        asked = subprocess.run(
            ["curl", "-sf", "--cacert", self.ca, "-H", "Authorization: Bearer lease",
             f"https://127.0.0.1:{self.port}/api/v1/namespaces/default"], capture_output=True)
        return asked.returncode == 0

    def pod(self):
        """What to put before a command that runs as in a pod; None where that is not allowed."""
        process = self.stage.start(["unshare", "-m", "sh", "-c", (
            f"mount -t tmpfs none /run && mkdir -p {ACCOUNT} && cd {ACCOUNT} && "
            f"cp {self.ca} ca.crt && cp {self.token_file} token && echo default >namespace && "
            "exec sleep 100000")])
        ready = f"/proc/{process.pid}/root{ACCOUNT}/namespace"
        until(lambda: os.path.exists(ready) or process.poll() is not None, "a pod", pause=0.01)
        return None if process.poll() is not None else [
            "nsenter", f"--mount=/proc/{process.pid}/ns/mnt", "env",
            "KUBERNETES_SERVICE_HOST=127.0.0.1", f"KUBERNETES_SERVICE_PORT={self.port}"]

    def choose_kubectl(self):
        """Google's kubectl asks the server for its version, and then starts another kubectl: this
        takes the newest of those."""
        folder = Path(shutil.which("kubectl")).resolve().parent
        others = sorted(folder.glob("kubectl.1.*"))
        if others:
            Path(self.stage.path("bin")).mkdir()
            os.symlink(others[-1], self.stage.path("bin/kubectl"))
            self.stage.environment["PATH"] = f"{self.stage.path('bin')}:{os.environ['PATH']}"

    def locks(self, report):
        """Each lock is a user of its own."""
        stage, found, pod = self.stage, [], self.pod()
        if pod:
            found.append(Dlock(stage, "dlock, in a pod", "k8s://default", named("pod"), pod))
        else:
            report.notes.append("dlock in a pod: skipped, it needs root and mount namespaces")
        if shutil.which("kubectl"):
            self.choose_kubectl()
            found += [Dlock(stage, "dlock, by kubectl's settings", "k8s://?context=outside",
                            named("outside")),
                      Client("kubectl loop", ["sh", stage.script("kubectl_loop", KUBECTL_LOOP)],
                             named("loop"))]
        else:
            report.notes.append("kubectl loop: skipped, no kubectl here")
        script = stage.script("lease_client.py", LEASE)
        return [*found, Client("Lease client", [DEBIAN_PYTHON, script, str(self.port), self.ca,
                                                "lease"], named("lease"))]


def named(user):
    return f'"username":"{user}"'


class Gateway:
    """An S3 server, and its bucket `locks`."""

    each = " s3_"

    def __init__(self, stage):
        self.stage, self.log = stage, stage.path("access.log")
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        os.makedirs(stage.path("gateway/locks"))
        stage.environment.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="secret")
        stage.start([SERVERS / "versitygw", "--port", address, "--region", "us-east-1", "--quiet",
                     "--keep-alive", "--access-log", self.log, "posix", stage.path("gateway")],
                    env={**stage.environment, "ROOT_ACCESS_KEY": "test",
                         "ROOT_SECRET_KEY": "secret"})
        until(lambda: subprocess.run(["curl", "-s", self.url], capture_output=True).returncode == 0,
              "versitygw", pause=0.1)

    def locks(self, _):
        loop = ["sh", self.stage.script("curl_loop", CURL_LOOP), self.url]
        return [Dlock(self.stage, "dlock, S3", f"s3://locks?endpoint={self.url}", " dlock/"),
                Client("curl loop", loop, " curl/")]

    def is_known_to_dlock(self):
        asked = subprocess.run(self.locks(None)[0].argv("k", TRUE, wait=True), capture_output=True,
                               env=self.stage.environment)
        return asked.returncode != 64
