#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/wait.hpp"

namespace dlock {

/// Which of several servers are one under two names, as far as that is known without asking them:
/// by their names, and by the addresses that those resolve to, once whoever connects has told them.
/// Any thread may tell, one asks.
class DuplicateServers {
 public:
  explicit DuplicateServers(std::vector<Endpoint> servers);

  /// The host of `server` resolves to these, in digits; to none where it does not.
  void resolved(std::size_t server, std::vector<std::string> addresses);

  /// Waits for the addresses that may show two to be one. Throws Error{interrupted}.
  void await_addresses(Deadline until, int cancel_fd) const;

  /// Two that have an address and the port in common. Under TLS they are still two where each is
  /// asked for by another name: what listens there may tell them apart by it.
  std::optional<std::pair<std::size_t, std::size_t>> shown() const;

  /// A server each: whether it may be one of the others, because both lead to one host, by
  /// different ways or by TLS.
  std::vector<bool> possible() const;

 private:
  using Addresses = std::set<std::string>;
  std::vector<Addresses> addresses() const;

  const std::vector<Endpoint> servers_;
  mutable std::mutex mutex_;
  std::vector<Addresses> addresses_;  ///< guarded by mutex_
  std::set<std::size_t> awaited_;     ///< guarded by mutex_: whose addresses matter, and lack
  const Event all_known_;
};

}  // namespace dlock
