// Locks in Kubernetes, on a real API server: what users and `kubectl get leases` see of them.

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "cli/databases.hpp"
#include "cli/place.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/kube_servers.hpp"

namespace dlock::test {
namespace {

using nlohmann::json;

constexpr const char* url = "k8s://";

/// Makes every later dlock of this test find a server by this environment.
void use(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

/// A server for all tests of the process, without Leases.
KubeServers& kubernetes() {
  KubeServers& servers = cleared<KubeServers>();
  use(servers.environment());
  return servers;
}

std::string spec_of(const json& lease, const char* field) {
  return text_at(lease, std::string("/spec/") + field);
}

TEST_CASE("kubernetes: locks, latches and guards live there") {
  if (is_missing<KubeServers>()) return;
  kubernetes();
  check_all_commands_at(url);
}

TEST_CASE("kubernetes: a Lease is named after its key, and shows who holds it") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  CommandInside holder(url, {"-t", "20s"});
  const auto leases = servers.leases();
  REQUIRE(leases.size() == 1);
  CHECK(text_at(leases[0], "/metadata/name").starts_with("a-"));
  CHECK(holds(spec_of(leases[0], "holderIdentity"),
              " pid " + std::to_string(holder.process.pid()) + " (sh)"));
  CHECK(leases[0]["spec"]["leaseDurationSeconds"] == 22);
  CHECK(!spec_of(leases[0], "acquireTime").empty());
  holder.end();
  CHECK(eventually([&] { return spec_of(servers.leases()[0], "holderIdentity").empty(); }));
}

TEST_CASE("kubernetes: an uncontended run reads once and writes twice, a renewal writes once") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  use(servers.environment("worker"));
  // The server may log a request late, and one release in 16 sweeps.
  const auto requests_of = [&](const std::vector<std::string>& run) {
    servers.take_requests();
    CHECK(dlock_at(url, run).exit_code == 0);
    auto requests = servers.take_requests();
    std::erase(requests, "list");
    return requests;
  };
  CHECK(in_one_of(5, [&] {
    return requests_of({"run", "-k", "a", "--", "true"}) ==
           std::vector<std::string>{"get", "update", "update"};
  }));
  CHECK(in_one_of(3, [&] {
    const auto all = requests_of({"run", "-t", "6s", "-k", "a", "--", "sleep", "5"});
    return std::count(all.begin(), all.end(), "get") == 1 && all.size() >= 5;
  }));
}

TEST_CASE("kubernetes: a waiter sends nothing but its watch, and hears of the release") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  CommandInside holder(url, {"-t", "60s"});
  use(servers.environment("worker"));
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, at(url));
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  REQUIRE(fall_asleep({waiter.pid()}, milliseconds(1000)));
  servers.take_requests();
  REQUIRE(fall_asleep({waiter.pid()}, milliseconds(3000)));
  CHECK(servers.take_requests().empty());
  const auto released = BootClock::now();
  holder.end();
  CHECK(waiter.wait(milliseconds(60'000)).out == "in\n");
  CHECK(BootClock::now() - released < milliseconds(20'000));
}

TEST_CASE("kubernetes: the server is killed: the command is dead before the lease ends, 79") {
  if (is_missing<KubeServers>()) return;
  KubeServers servers;
  use(servers.environment());
  CommandInside holder(url, {"-t", "6s"});
  servers.kill_hard();
  const auto killed = BootClock::now();
  CHECK(holder.process.wait(milliseconds(60'000)).exit_code == 79);
  CHECK(BootClock::now() - killed < milliseconds(8'000));
}

TEST_CASE("kubernetes: the server restarts: the holder keeps its lock, and a waiter its place") {
  if (is_missing<KubeServers>()) return;
  KubeServers servers;
  use(servers.environment());
  CommandInside holder(url, {"-t", "120s"});
  Process waiter = start_dlock({"run", "-t", "120s", "-k", "a", "--", "echo", "in"}, at(url));
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  servers.kill_hard();
  servers.start();
  servers.await_service();
  CHECK(holder.process.running());
  holder.end();
  CHECK(waiter.wait(milliseconds(90'000)).out == "in\n");
}

TEST_CASE("kubernetes: the server stands still for a moment: nobody notices") {
  if (is_missing<KubeServers>()) return;
  KubeServers servers;
  use(servers.environment());
  Process holder = start_dlock(
      {"run", "-q", "-t", "30s", "-k", "a", "--", "sh", "-c", "echo in; sleep 12"}, at(url));
  REQUIRE(eventually([&] { return holder.out() == "in\n"; }));
  servers.stop();
  sleep_until(later(BootClock::now(), milliseconds(11'000)), -1);
  servers.cont();
  CHECK(holder.wait(milliseconds(60'000)).exit_code == 0);
}

TEST_CASE("kubernetes: two API servers on one etcd are one place for locks") {
  if (is_missing<KubeServers>()) return;
  KubeServers servers(2);
  use(servers.environment("admin", 0));
  CommandInside holder(url, {"-t", "60s"});
  use(servers.environment("admin", 1));
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  Process waiter = start_dlock({"run", "-k", "a", "--", "echo", "in"}, at(url));
  REQUIRE(eventually([&] { return waiters(url) == 1; }));
  holder.end();
  CHECK(waiter.wait(milliseconds(60'000)).out == "in\n");
}

TEST_CASE("kubernetes: a login that has expired is replaced by the configured program") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  const TempDir dir;
  // The first token is not valid, as one that has expired.
  write_file(dir / "plugin",
             "#!/bin/sh\n[ -e \"$1\" ] && token=admin || token=expired\n: >\"$1\"\n"
             "echo '{\"status\": {\"token\": \"'$token'\"}}'\n");
  std::filesystem::permissions(dir / "plugin", std::filesystem::perms::owner_all);
  json config = servers.config("admin", servers.port());
  config["users"][0]["user"] = {{"exec", {{"command", dir / "plugin"}, {"args", {dir / "mark"}}}}};
  use(servers.environment_with(config));
  CHECK(run_at(url).exit_code == 0);
  config["users"][0]["user"] = {{"exec", {{"command", dir / "no-such"}}}};
  use(servers.environment_with(config));
  check_message(run_at(url), 77, "no credentials: env: ");
}

TEST_CASE("kubernetes: a token in a file is read for each login") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  const TempDir dir;
  json config = servers.config("admin", servers.port());
  config["users"][0]["user"] = {{"tokenFile", dir / "token"}};
  use(servers.environment_with(config));
  write_file(dir / "token", "expired\n");
  check_message(run_at(url), 77, "the token or certificate is not valid, or has expired");
  write_file(dir / "token", "admin\n");
  CHECK(run_at(url).exit_code == 0);
}

TEST_CASE("kubernetes: in a pod, the service account decides, without kubectl") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  const TempDir dir;
  const auto account = dir / "account";
  std::filesystem::create_directory(account);
  write_file(account + "/token", "admin");
  write_file(account + "/namespace", "default");
  write_file(account + "/ca.crt",
             from_base64(text_at(servers.config("admin", servers.port()),
                                 "/clusters/0/cluster/certificate-authority-data")));
  const std::string script =
      "mount -t tmpfs none /var/run && mkdir -p /var/run/secrets/kubernetes.io &&"
      " ln -s " +
      account +
      " /var/run/secrets/kubernetes.io/serviceaccount &&"
      " unset KUBECONFIG && PATH=/usr/bin:/bin exec \"$D\" run --server k8s:// -k a -- echo in";
  const Result pod = run({"unshare", "-m", "sh", "-c", script},
                         {.env = {{"D", dlock_path()},
                                  {"KUBERNETES_SERVICE_HOST", "127.0.0.1"},
                                  {"KUBERNETES_SERVICE_PORT", std::to_string(servers.port())}}});
  CHECK(pod.out == "in\n");
}

TEST_CASE("kubernetes: an account without rights is refused with the verb and the Role, 77") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  use(servers.environment("nobody"));
  check_message(run_at(url), 77, "cannot get resource \"leases\"");
  use(servers.environment("reader"));
  // The server learns of the reader's role a moment after it was made.
  REQUIRE(eventually([] { return dlock_at(url, {"inspect"}).exit_code == 0; }));
  const Result refused = run_at(url);
  check_message(refused, 77, "cannot create resource \"leases\"");
  CHECK(holds(refused.err, "dlock doctor --acl"));
  // On a busy machine, an answer may be late.
  CHECK(eventually([] {
    return holds(finding(doctor_at(url), "rights"), "may not create, update, delete leases");
  }));
  CHECK(holds(dlock_at(url, {"doctor", "--acl"}).out,
              "verbs: [get, list, watch, create, update, delete]"));
}

TEST_CASE("kubernetes: doctor names the cluster, its clock and how safe its locks are") {
  if (is_missing<KubeServers>()) return;
  kubernetes();
  const Result doctor = doctor_at(url);
  CHECK(holds(finding(doctor, "cluster"), "namespace default"));
  CHECK(finding(doctor, "clock").starts_with("ok within "));
  CHECK(finding(doctor, "lock").starts_with("ok "));
  CHECK(holds(doctor.out, "safe while a majority of the cluster's etcd lives"));
}

TEST_CASE("kubernetes: a Lease of others, or one edited by hand, is left alone, 65") {
  if (is_missing<KubeServers>()) return;
  KubeServers& servers = kubernetes();
  CHECK(run_at(url).exit_code == 0);
  const std::string path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/" +
                           text_at(servers.leases()[0], "/metadata/name");
  const auto refused_with = [&](const json& annotations) {
    json lease = servers.leases()[0];
    lease["metadata"]["annotations"] = annotations;
    const json changed = servers.ask({"PUT", path, lease}).object;
    check_message(run_at(url), 65);
    CHECK(text_at(servers.leases()[0], "/metadata/resourceVersion") ==
          text_at(changed, "/metadata/resourceVersion"));
  };
  refused_with({{"dlock/record", "ends 1\nrubbish\n"}, {"dlock/name", "dlock:k:a"}});
  refused_with(json::object());
}

TEST_CASE("kubernetes: a namespace that does not exist is named, 64") {
  if (is_missing<KubeServers>()) return;
  kubernetes();
  check_message(run_at("k8s://nowhere"), 64, "namespaces \"nowhere\" not found");
}

TEST_CASE("kubectl: without it, a context or a valid server dlock says so, 64") {
  use({{"PATH", "/nowhere"}});
  check_message(run_at(url), 64, "kubectl: command not found");
  const TempDir dir;
  const auto prints = [&](const std::string& script) {
    write_file(dir / "kubectl", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(dir / "kubectl", std::filesystem::perms::owner_all);
    use({{"PATH", dir.path() + ":/usr/bin:/bin"}});
  };
  prints("echo 'error: current-context must exist in order to minify' >&2; exit 1");
  check_message(run_at(url), 64, "kubectl: error: current-context must exist");
  prints("echo '{}'");
  check_message(run_at(url), 64, "the server of the cluster is not http");
}

TEST_CASE("kubectl: a server of its configuration that is too busy, or no API server, is 69") {
  const auto answers = [](const FakeServer& server) {
    const TempDir dir;
    write_file(dir / "kubectl",
               "#!/bin/sh\necho '{\"clusters\": [{\"cluster\": {\"server\": "
               "\"http://127.0.0.1:" +
                   std::to_string(server.address().port) + "\"}}]}'\n");
    std::filesystem::permissions(dir / "kubectl", std::filesystem::perms::owner_all);
    use({{"PATH", dir.path() + ":/usr/bin:/bin"}});
    return dlock_at(url, {"run", "-n", "-t", "6s", "-k", "a", "--", "true"});
  };
  const FakeServer busy(
      std::vector<Step>{say_http(R"({"kind": "Status", "message": "too many requests"})",
                                 "429 Too Many Requests")},
      true);
  check_message(answers(busy), 69, "too many requests");
  const FakeServer other(std::vector<Step>{say_http("<html>")}, true);
  check_message(answers(other), 69, "it answers 200, and no object of Kubernetes");
}

}  // namespace
}  // namespace dlock::test
