#include "zookeeper/zookeeper_addresses.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/join.hpp"
#include "net/resolve.hpp"

namespace dlock {
namespace {

/// Where the resolver does not answer, the servers may still be where they were.
constexpr milliseconds longest_look_up{2000};
constexpr milliseconds pause_between_look_ups{1000};

}  // namespace

void ZooKeeperAddresses::look_up(const CallOptions& call_options) {
  list_ = found(call_options);
  looked_up_ = BootClock::now();
}

bool ZooKeeperAddresses::look_up_again(const CallOptions& call_options) {
  if (BootClock::now() < later(looked_up_, pause_between_look_ups)) return false;
  const std::string before = list_;
  try {
    look_up(at_most(longest_look_up, share_of(call_options, 2)));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    looked_up_ = BootClock::now();
  }
  return list_ != before;
}

int ZooKeeperAddresses::count() const {
  return static_cast<int>(std::count(list_.begin(), list_.end(), ',')) + 1;
}

std::string ZooKeeperAddresses::found(const CallOptions& call_options) const {
  std::set<std::string> all;
  std::optional<Error> trouble;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const std::string port = ":" + std::to_string(servers_[i].port);
    const auto add = [&](const std::vector<std::string>& addresses) {
      for (const std::string& address : addresses) {
        const bool is_v6 = address.find(':') != std::string::npos;
        all.insert((is_v6 ? "[" + address + "]" : address) + port);
      }
    };
    try {
      resolve(servers_[i].host, servers_[i].port, share_of(call_options, servers_.size() - i), add);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error.reworded(shown_ + ": " + error.what());
    }
  }
  if (all.empty() && trouble) throw Error(*trouble);
  return joined(all, ",");
}

}  // namespace dlock
