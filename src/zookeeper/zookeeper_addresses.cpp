#include "zookeeper/zookeeper_addresses.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "net/resolve.hpp"

namespace dlock {
namespace {

/// Where the resolver does not answer, the servers may still be where they were.
constexpr milliseconds longest_look_up{2000};
constexpr milliseconds pause_between_look_ups{1000};

}  // namespace

void ZooKeeperAddresses::look_up(const CallOptions& call_options) {
  for (auto& addresses : found_) addresses.clear();
  find(call_options);
}

bool ZooKeeperAddresses::look_up_again(const CallOptions& call_options) {
  if (BootClock::now() < later(looked_up_, pause_between_look_ups)) return false;
  const std::string before = list_;
  try {
    find(at_most(longest_look_up, share_of(call_options, 2)));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
  }
  return list_ != before;
}

int ZooKeeperAddresses::count() const {
  return static_cast<int>(std::count(list_.begin(), list_.end(), ',')) + 1;
}

void ZooKeeperAddresses::find(const CallOptions& call_options) {
  std::optional<Error> trouble;
  bool any = false;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    try {
      std::set<std::string> addresses;
      for (const std::string& address :
           resolve_in_digits(servers_[i].host, share_of(call_options, servers_.size() - i))) {
        addresses.insert(address_of(address, std::to_string(servers_[i].port)));
      }
      found_[i] = std::move(addresses);
      any = true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error.reworded(shown_ + ": " + error.what());
    }
  }
  looked_up_ = BootClock::now();
  if (!any && trouble) throw Error(*trouble);
  std::set<std::string> all;
  for (const auto& addresses : found_) all.insert(addresses.begin(), addresses.end());
  list_ = joined(all, ",");
}

}  // namespace dlock
