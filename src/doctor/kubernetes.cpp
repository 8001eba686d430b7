#include "base/text.hpp"
#include "doctor/checks.hpp"

namespace dlock {
namespace {

/// The version from which on every part of the API that dlock uses is stable.
constexpr ShortVersion least_kubernetes{1, 19};

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
  KubeSurvey survey(target.context, target.name_space, target.name());
  examine(
      facts, target.name(), [&] { return std::optional(survey.clock(short_call())); },
      [&] { static_cast<KubeStatus&>(facts) = survey.status(short_call()); });
  if (facts.unreachable.empty() && facts.missing.empty()) {
    facts.trial = try_lock(open, scratch_key(), target.name());
  }
#endif
  return {target.name(), label_of(facts), check_kubernetes(facts)};
}

}  // namespace dlock
