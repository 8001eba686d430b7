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

/// In this time the client sends a release or an eviction to a server that is farther than the
/// others, also if a TLS handshake comes first, and such a server answers a renewal.
constexpr milliseconds time_for_a_far_server{250};

/// Names one hold: all that is asked about it goes by this.
using HoldName = std::pair<LockKey, Token>;

/// Is told by Nodes what becomes of the requests about holds, in the thread that asks and hears.
class HoldListener {
 public:
  virtual ~HoldListener() = default;
  virtual void on_reply(const HoldName& about, const NodeReply& reply) = 0;
  /// The node has been asked something else: what it owed about the hold is never heard.
  virtual void on_overtaken(const HoldName& about, std::size_t node) = 0;
  /// A node says unasked how it goes on, or that it no longer can.
  virtual void on_news(const NodeReply& reply) = 0;
};

/// The servers of a quorum, as one store has to do with them: what each was asked and owes, whose
/// process has answered under which name, what its clock shows, and what is wrong with it. Knows
/// nothing of the rules of a lock. One thread at a time.
class Nodes {
 public:
  using Answers = std::vector<std::optional<NodeReply>>;  ///< one for each node, where it has come

  explicit Nodes(std::unique_ptr<NodeClients> clients);

  void report_to(HoldListener* listener) { listener_ = listener; }

  std::size_t size() const { return clients_->size(); }
  std::size_t majority() const { return size() / 2 + 1; }
  std::string name(std::size_t node) const { return clients_->name(node); }

  /// Sends a request; what the node still owed is not waited for any more.
  void ask(std::size_t node, const std::optional<HoldName>& about, NodeRequest request,
           Deadline deadline);
  /// The next reply to what a node was asked last, or news; nothing at `until`. The listener has
  /// been told of it.
  std::optional<NodeReply> hear(Deadline until, int cancel_fd);
  /// Hears what has arrived, without waiting.
  void hear_arrived();
  /// Asks all the same, and hears them until `enough`, or for `linger` after a majority has
  /// answered.
  Answers poll(const NodeRequest& request, const CallOptions& call_options, milliseconds linger,
               const std::function<bool(const Answers&)>& enough);
  /// Hears those that owe a reply and were not late before, until the deadline. A node that does
  /// not reply by then is late: the next call does not wait for it.
  void await_stragglers(const CallOptions& call_options);
  bool owes(std::size_t node) const { return asked_[node].request != 0; }
  bool is_late(std::size_t node) const { return late_[node]; }
  /// Another hold than this, of which a node that is not late has a reply to give.
  std::optional<HoldName> hold_owed_beside(const HoldName& name) const;
  /// Raises call_options.sent, if a release was sent to a node that did not answer it.
  void tell_sent_release(const Answers& answers, const CallOptions& call_options) const;
  /// As NodeClients has it; what was asked is forgotten here, too.
  void begin_anew();

  /// A node has let the others wait, and has not answered since.
  void note_late(std::size_t node) { late_[node] = true; }

  const ServerClocks& clocks() const { return clocks_; }

  /// The latest errors of the nodes, each kind once for each node.
  std::vector<Error> take_troubles();
  /// Of this node, as told: nothing where there is nothing new.
  std::optional<ErrorKind> take_trouble(std::size_t node);
  [[noreturn]] void throw_no_majority_of(const Answers& answers) const;

 private:
  struct Asked {
    std::uint64_t request = 0;  ///< 0: nothing is owed
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
