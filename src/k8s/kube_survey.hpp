#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock {

/// What the API server says of itself and of dlock's account. Texts are not escaped.
struct KubeStatus {
  std::string url{};
  bool encrypted = true;
  std::string version{};  ///< `v1.34.4`
  std::string name_space{};
  std::vector<std::string> missing{};  ///< the verbs on leases that the account may not use
};

class KubeClient;

/// Asks the cluster for the facts of doctor. Throws as KubeClient::ask() does.
class KubeSurvey {
 public:
  /// The arguments are those of KubeBackend.
  KubeSurvey(const std::string& context, std::string name_space, const std::string& shown);
  ~KubeSurvey();

  /// The server's clock, half a second after the whole second that it shows.
  WallTime clock(const CallOptions& call_options);
  KubeStatus status(const CallOptions& call_options);

 private:
  std::unique_ptr<KubeClient> client_;
  std::string name_space_;
};

}  // namespace dlock
