#include "base/text.hpp"
#include "doctor/checks.hpp"
#ifdef DLOCK_WITH_KUBERNETES
#include "k8s/kube_client.hpp"
#endif

namespace dlock {
namespace {

/// The version from which on every part of the API that dlock uses is stable.
constexpr ShortVersion least_kubernetes{1, 19};
/// The verbs that dlock uses on Leases.
constexpr const char* verbs_on_leases[] = {"get", "list", "watch", "create", "update", "delete"};

#ifdef DLOCK_WITH_KUBERNETES
WallTime clock_of(KubeClient& client) {
  client.ask({"GET", "/version"}, short_call());
  return WallTime(client.last_clock()->clock);
}

/// Whether the account may use a verb on the Leases of the namespace.
bool is_allowed(KubeClient& client, const std::string& name_space, const char* verb) {
  const auto answer = client.ask({"POST",
                                  "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                                  {{"apiVersion", "authorization.k8s.io/v1"},
                                   {"kind", "SelfSubjectAccessReview"},
                                   {"spec",
                                    {{"resourceAttributes",
                                      {{"namespace", name_space},
                                       {"verb", verb},
                                       {"group", "coordination.k8s.io"},
                                       {"resource", "leases"}}}}}}},
                                 short_call());
  return answer.object.value("status", KubeAnswer{}.object).value("allowed", false);
}

void examine_cluster(KubeClient& client, const std::string& name_space, KubeFacts& facts) {
  const KubeCluster& cluster = client.cluster(short_call());
  facts.url = cluster.server.name();
  facts.encrypted = cluster.server.endpoint.tls.has_value();
  facts.name_space = name_space.empty() ? cluster.name_space : name_space;
  facts.version = text_at(client.ask({"GET", "/version"}, short_call()).object, "/gitVersion");
  for (const char* verb : verbs_on_leases) {
    if (!is_allowed(client, facts.name_space, verb)) facts.missing.emplace_back(verb);
  }
}
#endif

}  // namespace

std::string label_of(const KubeFacts&) {
  return "safe while a majority of the cluster's etcd lives, and while the clocks of its API "
         "servers differ by at most a second";
}

Findings check_kubernetes(const KubeFacts& facts) {
  const Finding reach = check_reach(
      facts, advice_on(facts.unreachable.cause, "is the API server up, and the network open?"));
  const std::string version = facts.version.empty() ? "" : facts.version.substr(1);
  return first_rows({
      {"reach", reach.level == Level::error, reach, ends},
      {"reach", true, warn_if_slow(reach, facts.round_trip, facts.options.ttl)},
      {"engine", true, check_versions("Kubernetes", {version}, least_kubernetes)},
      {"cluster", true,
       good(sentence("{}, namespace {}", escaped(facts.url), escaped(facts.name_space)))},
      {"rights", !facts.missing.empty(),
       bad("the account may not " + joined(facts.missing, ", ") + " leases.coordination.k8s.io",
           "`dlock doctor --acl` prints the Role that allows it")},
      {"rights", true, good("all that dlock needs on leases.coordination.k8s.io")},
      {"tls", facts.encrypted, good("the certificate of the server is verified")},
      {"tls", true, check_plain_text(facts.here, "https:// in the server of the cluster")},
      {"lock", facts.trial.has_value(), check_lock(facts.trial)},
      {"clock", true, check_clock(facts.clock)},
      {"label", true, good(label_of(facts))},
  });
}

Diagnosis diagnose(const KubeTarget& target, const DoctorOptions& options, const OpenStore& open) {
  KubeFacts facts;
  facts.options = options;
#ifdef DLOCK_WITH_KUBERNETES
  KubeClient client(target.context, target.name());
  examine(
      facts, target.name(), [&] { return std::optional(clock_of(client)); },
      [&] { examine_cluster(client, target.name_space, facts); }, std::chrono::seconds(1));
  if (facts.unreachable.empty() && facts.missing.empty()) {
    facts.trial = try_lock(open, scratch_key(), target.name());
  }
#endif
  return {target.name(), label_of(facts), check_kubernetes(facts)};
}

std::string rights_text(const KubeTarget& target, const DoctorOptions&) {
  const std::string in = target.name_space.empty() ? "NAMESPACE" : target.name_space;
  return sentence(
      "apiVersion: rbac.authorization.k8s.io/v1\n"
      "kind: Role\n"
      "metadata: {name: dlock, namespace: {}}\n"
      "rules:\n"
      "- apiGroups: [coordination.k8s.io]\n"
      "  resources: [leases]\n"
      "  verbs: [{}]\n"
      "---\n"
      "apiVersion: rbac.authorization.k8s.io/v1\n"
      "kind: RoleBinding\n"
      "metadata: {name: dlock, namespace: {}}\n"
      "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dlock}\n"
      "subjects:\n"
      "- {kind: ServiceAccount, name: ACCOUNT, namespace: {}}\n",
      in, joined(verbs_on_leases, ", ", [](const char* each) { return std::string(each); }), in,
      in);
}

}  // namespace dlock
