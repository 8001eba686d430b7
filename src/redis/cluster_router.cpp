#include "redis/cluster_router.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "redis/backoff.hpp"
#include "redis/server_error.hpp"

namespace dlock {
namespace {

CallOptions share_of(const CallOptions& call_options, milliseconds share) {
  return {std::min(call_options.deadline, later(BootClock::now(), share)), call_options.cancel_fd};
}

}  // namespace

/// The way of one request to the node that serves it.
class ClusterRouter::RoutedCall {
 public:
  RoutedCall(ClusterRouter& cluster, int slot, const CallOptions& call_options)
      : cluster_(cluster), slot_(slot), patience_(call_options), pauses_(call_options) {}

  /// Goes on until `visit` came to an end. Returns whether one before may have been done, too.
  bool run(const Visit& visit) {
    while (!arrives(visit)) {
    }
    return may_be_done_;
  }

 private:
  NodeAddress next_stop();
  CallOptions share() const;
  bool arrives(const Visit& visit);
  void visit_node(const NodeAddress& place, RedisClient& node, const Visit& visit);
  void hear(const NodeAddress& place, RedisClient& node, bool asking);
  void follow(const Redirected& redirected, const NodeAddress& place);
  void look_elsewhere(const Error& error, const NodeAddress& place);
  bool refreshed(const NodeAddress& avoided);
  void pause_after(const Error& error);

  ClusterRouter& cluster_;
  int slot_;
  CallOptions patience_;
  Backoff pauses_;
  std::optional<NodeAddress> asked_over_;  ///< where an ASK sent us
  int redirections_ = 0;                   ///< in a row
  std::size_t dead_seeds_ = 0;
  std::optional<Error> first_trouble_;
  bool hurried_ = false;  ///< to where a slot is now, without a pause
  bool may_be_done_ = false;
};

NodeAddress ClusterRouter::RoutedCall::next_stop() {
  if (asked_over_) return *asked_over_;
  return cluster_.map_.owner(slot_).value_or(cluster_.seeds_[cluster_.seed_]);
}

/// Of the time left: another node may answer where one is silent.
CallOptions ClusterRouter::RoutedCall::share() const {
  constexpr milliseconds least{100};
  const auto left = left_until(patience_.deadline);
  const std::size_t others = cluster_.map_.is_empty() ? cluster_.seeds_.size() - dead_seeds_ : 2;
  return share_of(patience_, std::max(left / static_cast<int>(others), std::min(left, least)));
}

bool ClusterRouter::RoutedCall::arrives(const Visit& visit) {
  const NodeAddress place = next_stop();
  RedisClient& node = cluster_.node_at(place);
  const bool was_open = node.is_open();
  const int links = node.links();
  try {
    visit_node(place, node, visit);
    return true;
  } catch (const Redirected& redirected) {
    follow(redirected, place);
  } catch (const Error& error) {
    // A link that is still open has brought an answer, which another node would give, too.
    if (error.trouble() != ErrorKind::unavailable || node.is_open()) throw;
    may_be_done_ = may_be_done_ || was_open || node.links() != links;
    look_elsewhere(error, place);
  }
  return false;
}

void ClusterRouter::RoutedCall::visit_node(const NodeAddress& place, RedisClient& node,
                                           const Visit& visit) {
  const bool asking = asked_over_.has_value();
  asked_over_.reset();
  if (asking) {
    node.precede_with({"ASKING"});
  } else if (!node.is_open()) {
    node.precede_with({"CLUSTER", "SLOTS"});
  }
  try {
    visit(node, share());
  } catch (const Redirected&) {
    hear(place, node, asking);
    throw;
  }
  hear(place, node, asking);
  if (!asking && cluster_.map_.owner(slot_) != place) cluster_.map_.move(slot_, place);
}

void ClusterRouter::RoutedCall::hear(const NodeAddress& place, RedisClient& node, bool asking) {
  const auto& said = node.said_before();
  if (!said) return;
  if (!asking) return cluster_.take_map(node, *said, place);
  if (!said->is_error()) return;
  const Error error = server_error(*said);
  throw error.reworded(node.server_name() + ": " + error.what());
}

void ClusterRouter::RoutedCall::follow(const Redirected& redirected, const NodeAddress& place) {
  constexpr int most_redirections = 5;
  constexpr int usual_redirections = 2;
  const Redirection& redirection = redirected.redirection();
  if (redirection.kind == Redirection::Kind::nowhere) throw redirected;
  if (redirection.kind == Redirection::Kind::later) {
    redirections_ = 0;
    pause_after(redirected);
    refreshed(place);
    return;
  }
  NodeAddress to = redirection.to;
  if (to.host.empty()) to.host = place.host;
  const bool in_circles = ++redirections_ > most_redirections;
  // Two nodes may disagree for a moment about who has a slot that has just moved.
  if (in_circles || (redirections_ > usual_redirections && !pauses_.fit())) {
    throw Error(ErrorKind::unavailable,
                cluster_.name_ + ": its nodes send each other's requests round in circles: " +
                    redirected.what());
  }
  if (redirections_ > usual_redirections) pauses_.take();
  if (redirection.kind == Redirection::Kind::moved) {
    cluster_.map_.move(slot_, to);
  } else {
    asked_over_ = to;
  }
}

void ClusterRouter::RoutedCall::look_elsewhere(const Error& error, const NodeAddress& place) {
  redirections_ = 0;
  const auto& seeds = cluster_.seeds_;
  if (place == seeds[cluster_.seed_]) cluster_.seed_ = (cluster_.seed_ + 1) % seeds.size();
  if (!first_trouble_) first_trouble_ = error;
  if (cluster_.map_.is_empty()) {
    if (++dead_seeds_ == seeds.size()) cluster_.give_up(seeds.size(), *first_trouble_);
    return;
  }
  if (refreshed(place) && next_stop() != place && !std::exchange(hurried_, true)) return;
  pause_after(error);
}

/// Half of the time left at most is spent on it, for the request itself needs some.
bool ClusterRouter::RoutedCall::refreshed(const NodeAddress& avoided) {
  try {
    cluster_.refresh(avoided, share_of(patience_, left_until(patience_.deadline) / 2));
    return true;
  } catch (const Error& error) {
    if (error.trouble() == ErrorKind::interrupted) throw;
    return false;
  }
}

/// Where no time is left, the trouble that came first says more than the last attempt, which had
/// hardly any.
void ClusterRouter::RoutedCall::pause_after(const Error& error) {
  if (!first_trouble_) first_trouble_ = error;
  if (!pauses_.fit()) throw Error(*first_trouble_);
  pauses_.take();
}

ClusterRouter::ClusterRouter(std::vector<Endpoint> seeds, OpenNode open)
    : login_(seeds.front()), open_(std::move(open)), name_(deployment_name("cluster", seeds)) {
  for (const Endpoint& seed : seeds) seeds_.push_back({seed.host, seed.port});
}

RedisClient& ClusterRouter::node_at(const NodeAddress& place) {
  auto& node = nodes_[place];
  if (!node) {
    Endpoint endpoint = login_;
    endpoint.host = place.host;
    endpoint.port = place.port;
    node = open_(endpoint);
  }
  node->precede_with({});
  return *node;
}

bool ClusterRouter::at_slot(int slot, const CallOptions& call_options, const Visit& visit) {
  return RoutedCall(*this, slot, call_options).run(visit);
}

void ClusterRouter::take_map(RedisClient& node, const Reply& reply, const NodeAddress& place) {
  try {
    if (!reply.is_error()) return map_.learn(reply, place);
  } catch (const Error& error) {
    node.close();
    throw error.reworded(node.server_name() + ": " + error.what());
  }
  if (reply.text.find("cluster support disabled") == std::string::npos) return;
  // What it was asked beside is void.
  node.close();
  throw Error(
      ErrorKind::unavailable,
      node.server_name() + ": it is not a node of a Cluster: write redis:// for a single server");
}

void ClusterRouter::refresh(const std::optional<NodeAddress>& avoided,
                            const CallOptions& call_options) {
  constexpr std::size_t most = 8;
  auto places = map_.nodes();
  for (const NodeAddress& seed : seeds_) {
    if (std::find(places.begin(), places.end(), seed) == places.end()) places.push_back(seed);
  }
  if (avoided) std::erase(places, *avoided);
  const auto first = places.empty() ? 0 : refreshes_++ % places.size();
  std::rotate(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(first), places.end());
  places.resize(std::min(places.size(), most));
  std::optional<Error> last;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto share = left_until(call_options.deadline) / static_cast<int>(places.size() - i);
    try {
      RedisClient& node = node_at(places[i]);
      const Reply reply = node.read({{"CLUSTER", "SLOTS"}}, share_of(call_options, share)).front();
      take_map(node, reply, places[i]);
      if (!reply.is_error()) return;
      const Error error = server_error(reply);
      last = error.reworded(node.server_name() + ": " + error.what());
    } catch (const Error& error) {
      if (error.trouble() == ErrorKind::interrupted) throw;
      last = error;
    }
  }
  give_up(places.size(), last.value_or(Error(ErrorKind::unavailable, "there is no other node")));
}

void ClusterRouter::give_up(std::size_t nodes, const Error& last) const {
  if (nodes < 2) throw last;
  throw last.reworded(name_ + ": none of " + std::to_string(nodes) +
                      " nodes is usable: " + last.what());
}

bool ClusterRouter::was_reached() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return node.second->links() > 0; });
}

std::vector<Reply> ClusterRouter::read_at(int slot, const std::vector<Request>& requests,
                                          const CallOptions& call_options) {
  std::vector<Reply> replies;
  at_slot(slot, call_options, [&](RedisClient& node, const CallOptions& share) {
    replies = node.read(requests, share);
    const auto redirection = redirection_in(replies.front());
    if (!redirection) return;
    throw Redirected(*redirection,
                     node.server_name() + ": " + server_error(replies.front()).what());
  });
  return replies;
}

void ClusterRouter::at_each_master(const CallOptions& call_options, const Visit& visit) {
  refresh(std::nullopt, call_options);
  if (const int unserved = map_.unserved(); unserved > 0) {
    throw Error(ErrorKind::unavailable,
                name_ + ": " + std::to_string(unserved) +
                    " of its slots have no node, so nobody can tell all locks");
  }
  for (const NodeAddress& master : map_.masters()) {
    visit(node_at(master), share_of(call_options, left_until(call_options.deadline) / 2));
  }
}

}  // namespace dlock
