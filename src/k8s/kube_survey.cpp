#include "k8s/kube_survey.hpp"

#include "base/error.hpp"
#include "k8s/kube_client.hpp"

namespace dlock {
namespace {

/// The verbs that dlock uses, those of the Role of `dlock doctor --acl`.
constexpr const char* verbs[] = {"get", "list", "watch", "create", "update", "delete"};

}  // namespace

KubeSurvey::KubeSurvey(const std::string& context, std::string name_space, const std::string& shown)
    : client_(std::make_unique<KubeClient>(context, shown)), name_space_(std::move(name_space)) {}

KubeSurvey::~KubeSurvey() = default;

WallTime KubeSurvey::clock(const CallOptions& call_options) {
  client_->ask({"GET", "/version"}, call_options);
  const auto clock = client_->last_clock();
  if (!clock) throw_unavailable(client_->name() + ": its answers have no Date");
  return WallTime(clock->clock + milliseconds(500));
}

KubeStatus KubeSurvey::status(const CallOptions& call_options) {
  const KubeCluster& cluster = client_->cluster(call_options);
  KubeStatus status{cluster.url(), cluster.encrypted};
  status.name_space = !name_space_.empty()          ? name_space_
                      : !cluster.name_space.empty() ? cluster.name_space
                                                    : "default";
  const auto version = client_->ask({"GET", "/version"}, call_options);
  status.version = text_at(version.object, "/gitVersion");
  for (const char* verb : verbs) {
    const nlohmann::json review = {{"apiVersion", "authorization.k8s.io/v1"},
                                   {"kind", "SelfSubjectAccessReview"},
                                   {"spec",
                                    {{"resourceAttributes",
                                      {{"namespace", status.name_space},
                                       {"verb", verb},
                                       {"group", "coordination.k8s.io"},
                                       {"resource", "leases"}}}}}};
    const auto answer = client_->ask(
        {"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review}, call_options);
    const nlohmann::json::json_pointer allowed("/status/allowed");
    if (!answer.object.contains(allowed) || answer.object[allowed] != true) {
      status.missing.emplace_back(verb);
    }
  }
  return status;
}

}  // namespace dlock
