#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "redis/node_address.hpp"
#include "redis/redis_client.hpp"
#include "redis/slot_map.hpp"

namespace dlock {

/// The way of every request to the node of a Redis Cluster that has its key's slot: one client for
/// each node that was needed. Redirections are followed, and a node that does not answer is looked
/// for anew, for as long as the caller's deadline allows. Owned and used by one thread at a time.
///
/// Each link to a node begins with the question where the slots are, in the same write as the first
/// request: so a node that has the slot costs no round trip more than a server alone, and another
/// one a redirection.
class ClusterRouter final : public RedisTransport {
 public:
  /// `seeds`: some nodes, whose login and TLS are those of all.
  ClusterRouter(std::vector<Endpoint> seeds, RedisTerms terms);

  /// As of a client; `sent_twice` also where a node broke off that may have done it.
  ScriptReply run_script(const ScriptRun& run, const CallOptions& call_options) override;
  /// Keys of one node go there in one write. What turns out to be elsewhere, or to be on its way,
  /// is asked for there one by one.
  std::vector<Reply> read(const std::vector<std::string>& keys,
                          const std::vector<Request>& requests,
                          const CallOptions& call_options) override;
  std::variant<ChannelMessage, Wake::Reason> next_message(const std::string& channel,
                                                          Deadline until, int cancel_fd) override;
  /// Throws Error{unavailable} where some slots have no node.
  void visit_all(const CallOptions& call_options, const Visit& visit) override;
  bool is_cluster() const override { return true; }
  std::vector<int> connections() const override;
  bool was_reached() const override;
  std::string name() const override { return name_; }

 private:
  class RoutedCall;
  using Asking = RedisClient::Asking;
  /// One try of a request at `node`: the first of its replies, where that is an error.
  using Try = std::function<std::optional<Reply>(RedisClient& node, const CallOptions& call_options,
                                                 Asking asking)>;

  /// Makes `attempt` at the node of `slot`, and again for as long as there is reason to. Returns
  /// whether one that broke off may have done it before the last.
  bool at_slot(int slot, const CallOptions& call_options, const Try& attempt);
  std::vector<Reply> read_at(int slot, const std::vector<Request>& requests,
                             const CallOptions& call_options);
  RedisClient& node_at(const NodeAddress& place);
  /// Takes what a new link has said about the slots.
  void hear(RedisClient& node, const NodeAddress& place);
  /// The answer to CLUSTER SLOTS; throws Error{unavailable} where it comes from no Cluster.
  void take_map(RedisClient& node, const Reply& reply, const NodeAddress& place);
  /// Asks nodes where the slots are, others than `avoided`; throws Error if none can say.
  void refresh(const std::optional<NodeAddress>& avoided, const CallOptions& call_options);
  [[noreturn]] void give_up(std::size_t nodes, const Error& last) const;

  const RedisTerms terms_;
  std::vector<NodeAddress> seeds_;
  Endpoint login_;  ///< of every node, without its place
  std::string name_;
  std::map<NodeAddress, std::unique_ptr<RedisClient>> nodes_;  ///< none ever goes
  SlotMap map_;
  RedisClient* listening_ = nullptr;  ///< the node where the last script that listens was answered
  std::size_t seed_ = 0;              ///< the one to ask for slots nobody is known to have
  std::size_t refreshes_ = 0;         ///< each begins with another node
};

}  // namespace dlock
