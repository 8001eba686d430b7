#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quorum/node_clients.hpp"
#include "quorum/server_clocks.hpp"

namespace dlock {

/// Extra time for a server that is farther than the others. It suffices to send a release or an
/// eviction, even after a TLS handshake, and to receive the answer to a renewal.
constexpr milliseconds time_for_a_far_server{250};

/// Identifies one hold. All requests about the hold carry this name.
using HoldName = std::pair<LockKey, Token>;

/// Receives from Nodes the replies to requests about holds, in the thread that asks and hears.
class HoldListener {
 public:
  virtual ~HoldListener() = default;
  virtual void on_reply(const HoldName& about, const NodeReply& reply) = 0;
  /// The node was asked something else: its answer about the hold is dropped.
  virtual void on_overtaken(const HoldName& about, std::size_t node) = 0;
  /// A node sends a message unasked, or its messages have ended with an error.
  virtual void on_news(const NodeReply& reply) = 0;
};

/// Sends the requests of one store to the servers of a quorum. Keeps for each server the request
/// that is owed a reply, the process that answered, its clock, and its latest error. Nodes knows
/// nothing of the rules of a lock. Used by one thread at a time.
class Nodes {
 public:
  using Answers = std::vector<std::optional<NodeReply>>;  ///< one for each node, if it came

  explicit Nodes(std::unique_ptr<NodeClients> clients);

  void report_to(HoldListener* listener) { listener_ = listener; }

  std::size_t size() const { return clients_->size(); }
  std::size_t majority() const { return size() / 2 + 1; }
  std::string name(std::size_t node) const { return clients_->name(node); }

  /// Sends a request; an answer that the node still owes is dropped.
  void ask(std::size_t node, const std::optional<HoldName>& about, NodeRequest request,
           Deadline deadline);
  /// The next reply to a node's last request, or a message that came unasked; nothing at `until`.
  /// The listener has received it before.
  std::optional<NodeReply> hear(Deadline until, int cancel_fd);
  /// Takes what has arrived, without waiting.
  void hear_arrived();
  /// Sends the request to all nodes, and hears them until `enough`, or for `linger` after a
  /// majority has answered.
  Answers poll(const NodeRequest& request, const CallOptions& call_options, milliseconds linger,
               const std::function<bool(const Answers&)>& enough);
  /// Waits until the deadline for nodes that owe a reply and were not late before. A node that does
  /// not reply by then is late: the next call does not wait for it.
  void await_stragglers(const CallOptions& call_options);
  bool owes(std::size_t node) const { return asked_[node].request != 0; }
  bool is_late(std::size_t node) const { return late_[node]; }
  /// A hold other than `name` about which a node that is not late owes a reply.
  std::optional<HoldName> hold_owed_beside(const HoldName& name) const;
  /// Raises call_options.sent if a release was sent to a node that did not answer it.
  void tell_sent_release(const Answers& answers, const CallOptions& call_options) const;
  /// See NodeClients; this also forgets the requests.
  void begin_anew();

  /// Marks a node that did not answer in time, until it answers again.
  void note_late(std::size_t node) { late_[node] = true; }

  const ServerClocks& clocks() const { return clocks_; }

  /// The latest errors of the nodes, each kind once for each node.
  std::vector<Error> take_troubles();
  /// The kind of this node's latest error, which then counts as reported; nothing if there is no
  /// new one.
  std::optional<ErrorKind> take_trouble(std::size_t node);
  [[noreturn]] void throw_no_majority_of(const Answers& answers) const;

 private:
  struct Asked {
    std::uint64_t request = 0;  ///< 0: no reply is owed
    std::optional<HoldName> about;
  };

  void check_identity(NodeReply& reply);
  void note_trouble(const NodeReply& reply);

  std::unique_ptr<NodeClients> clients_;
  HoldListener* listener_ = nullptr;
  std::vector<Asked> asked_;
  std::vector<bool> late_;
  ServerClocks clocks_;
  std::map<std::string, std::size_t> nodes_by_process_;
  std::map<std::size_t, Error> untold_;
  std::set<std::pair<std::size_t, ErrorKind>> told_;
};

}  // namespace dlock
