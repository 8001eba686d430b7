#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "quorum/node_threads.hpp"

namespace dlock::test {

/// Counts the exchanges with the servers that a grant takes, as QuorumStore defines them. It sees
/// all requests and replies between the store and its nodes, for one claim after the other.
class Exchanges {
 public:
  explicit Exchanges(std::size_t members) : granted_(members), asked_(members) {}

  void asked(std::size_t member, const NodeRequest& request) {
    const auto* vote = std::get_if<Vote>(&request);
    if (vote != nullptr && vote->claim.token != token_) begin(vote->claim);
    if (vote != nullptr || std::holds_alternative<Renewal>(request)) ++asked_[member];
    if (std::holds_alternative<Release>(request)) granted_[member] = false;
  }

  void heard(const NodeReply& heard) {
    const auto says = granted_by(heard);
    if (!says) return;
    const bool was_in = is_in();
    granted_[heard.node] = *says;
    if (was_in || !is_in()) return;
    by_answer_ = !std::holds_alternative<Wake>(heard.response);
    std::fill(asked_.begin(), asked_.end(), 0);
  }

  /// The number of exchanges of the last grant.
  std::size_t taken() const {
    const std::size_t since = *std::max_element(asked_.begin(), asked_.end());
    // The requests in flight when the message came may have been enough.
    return std::max<std::size_t>(since + (by_answer_ ? 1 : 0), 1);
  }

 private:
  void begin(const Claim& claim) {
    token_ = claim.token;
    needed_ = votes_needed(granted_.size(), claim.limit);
    granted_.assign(granted_.size(), false);
  }

  bool is_in() const {
    const auto granted = std::count(granted_.begin(), granted_.end(), true);
    return static_cast<std::size_t>(granted) >= needed_;
  }

  /// Whether the node granted the claim; nothing if this reply does not say.
  static std::optional<bool> granted_by(const NodeReply& heard) {
    const bool votes = heard.standing.quarantined_for == milliseconds(0);
    if (const auto* answer = std::get_if<Answer>(&heard.response)) {
      return votes && std::holds_alternative<Grant>(*answer);
    }
    if (const auto* renewed = std::get_if<Renewed>(&heard.response)) {
      return votes && renewed->grant.has_value();
    }
    const auto* wake = std::get_if<Wake>(&heard.response);
    if (wake != nullptr && wake->why == Wake::Reason::granted) return true;
    return std::nullopt;
  }

  Token token_;
  std::size_t needed_ = 0;
  std::vector<bool> granted_;
  std::vector<std::size_t> asked_;  ///< since the claim was granted
  bool by_answer_ = false;
};

}  // namespace dlock::test
