#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quorum/hold_state.hpp"
#include "quorum/node_threads.hpp"

namespace dlock {

/// Extra time for a server that is farther than the others. It suffices to send one request, even
/// after a TLS handshake, or to receive the answer to a renewal.
constexpr milliseconds time_for_a_far_server{250};

/// The wall clocks of the nodes, as reported, continued by this host's BootClock. All clients of
/// the same nodes thus use one clock, whatever the wall clocks of their hosts show.
class ServerClocks {
 public:
  explicit ServerClocks(std::size_t nodes) : known_(nodes) {}

  /// Records the reading from `node`, unless an earlier one is more exact.
  void note(std::size_t node, const ClockReading& reading);

  /// The median of the known clocks at `when`, since the epoch; of two in the middle, the earlier
  /// one. The result is empty while no clock is known.
  std::optional<microseconds> median(Deadline when) const;

 private:
  struct Known {
    BootClock::duration ahead{0};  ///< how far it is ahead of BootClock
    BootClock::duration unsure{0};
    Deadline read{};
  };
  std::vector<std::optional<Known>> known_;
};

/// The answers that are of type Kind.
template <typename Kind>
std::vector<Kind> all_of(const std::vector<Response>& answers) {
  std::vector<Kind> all;
  for (const Response& answer : answers) {
    if (const auto* one = std::get_if<Kind>(&answer)) all.push_back(*one);
  }
  return all;
}

/// Sends the requests of one store to the servers of a quorum, and passes the replies to the holds.
/// Keeps for each server the requests that it has to answer, the process that answered, its clock,
/// and its latest error. Used by one thread at a time.
class Nodes {
 public:
  using Answers = std::vector<Response>;  ///< one for each node; an Error until it comes

  explicit Nodes(std::unique_ptr<NodeClients> clients);

  std::size_t size() const { return clients_->size(); }
  std::size_t majority() const { return size() / 2 + 1; }
  std::string name(std::size_t node) const { return clients_->name(node); }
  const ServerClocks& clocks() const { return clocks_; }

  /// Sends requests. `about` notes the replies; if it is null, nobody needs them.
  void ask(std::vector<NodeCall> requests, QuorumHold* about);
  /// Passes the messages that nodes send without a request to `hold`.
  void listen_for(QuorumHold& hold) { waiting_ = &hold; }
  /// Passes no more replies to `hold`, which its owner is about to destroy.
  void forget(const QuorumHold& hold);
  /// The next reply to a request, or a message that came unasked; nothing at `until`.
  /// The hold that it is about has noted it.
  std::optional<NodeReply> hear(Deadline until, int cancel_fd);
  /// Handles the replies and messages that have arrived, without waiting.
  void hear_arrived();
  /// Sends the request to all nodes, and hears them until `enough` returns true. An empty `enough`
  /// ends straggler_wait after a majority has answered.
  Answers poll(const NodeRequest& request, const CallOptions& call_options,
               const std::function<bool(const Answers&)>& enough = {});
  /// Waits for `span`, or until the deadline, for nodes that owe a reply and were not late before.
  /// A node that does not reply by then is late: the next call does not wait for it.
  void await_stragglers(milliseconds span, Deadline deadline);
  bool owes(std::size_t node) const { return !asked_[node].empty(); }
  bool is_late(std::size_t node) const { return late_[node]; }
  /// Marks a node that did not answer in time, until it answers again.
  void note_late(std::size_t node) { late_[node] = true; }
  /// Notes in the hold that its outstanding answers did not come in time.
  void give_up(QuorumHold& hold) const;
  /// Raises call_options.sent if a release was sent to a node that did not answer it.
  void note_sent_release(const Answers& answers, const CallOptions& call_options) const;
  std::vector<int> connections() const { return clients_->connections(); }
  /// See NodeClients; this also forgets the requests.
  void begin_anew();

  /// Returns the new errors of the nodes; each kind of error is reported once for each node.
  std::vector<Error> take_troubles();
  /// Counts the nodes that have the hold and says what is wrong with the others. These errors then
  /// count as reported.
  QuorumMargin margin_of(const QuorumHold& hold);
  /// The refusal of a claim that lacks votes because too many nodes are in quarantine; nothing if
  /// enough nodes can vote.
  std::optional<Refusal> too_few_votes(const QuorumHold& hold) const;
  /// Throw an Error that names each node that did not answer, or does not count for the hold, and
  /// the reason.
  [[noreturn]] void throw_no_majority_of(const Answers& answers) const;
  [[noreturn]] void throw_no_majority_of(const QuorumHold& hold) const;

 private:
  struct Asked {
    std::uint64_t number = 0;
    bool is_upkeep = false;
    QuorumHold* about = nullptr;
  };

  Error no_answer(std::size_t node) const;
  void check_identity(NodeReply& reply);
  void note_trouble(const NodeReply& reply);
  std::optional<std::string> fault_of(const QuorumHold& hold, std::size_t node) const;

  std::unique_ptr<NodeClients> clients_;
  QuorumHold* waiting_ = nullptr;
  std::vector<std::vector<Asked>> asked_;  ///< of each node, the requests that it owes a reply
  std::vector<bool> late_;
  ServerClocks clocks_;
  std::map<std::string, std::size_t> nodes_by_process_;
  std::map<std::size_t, Error> unreported_;
  std::set<std::pair<std::size_t, ErrorKind>> reported_;
};

}  // namespace dlock
