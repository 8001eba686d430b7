#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock {

/// The keys that sign a request for AWS.
struct AwsCredentials {
  std::string id;
  std::string secret;
  std::string session_token{};        ///< empty: a user's own keys, which need none
  std::optional<WallTime> expires{};  ///< nothing: they last
};

/// Finds credentials where AWS's own programs look for them: variables, a web identity, a profile,
/// the container's or the instance's role. Those that expire are fetched anew five minutes before.
class AwsCredentialChain {
 public:
  explicit AwsCredentialChain(std::string region) : region_(std::move(region)) {}

  /// Throws Error{denied} if there are none.
  const AwsCredentials& current(const CallOptions& call_options);
  /// The next call of current() looks for them again, because a server has refused these.
  void forget() { known_.reset(); }

 private:
  std::string region_;
  std::optional<AwsCredentials> known_;
};

/// The settings below `[section]` in the text of an AWS file.
std::map<std::string, std::string> ini_section(std::string_view text, std::string_view section);

/// The credentials in the JSON of a program, a container or an instance. Throws Error{denied} that
/// begins with `source` if it has none.
AwsCredentials credentials_in(const std::string& json, const std::string& source);

}  // namespace dlock
