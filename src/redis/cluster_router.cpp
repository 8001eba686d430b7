#include "redis/cluster_router.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "redis/entry_format.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

constexpr int slot_count = 16384;

/// Parses the last word of `MOVED 3999 10.0.0.1:6381`. An IPv6 address has no brackets there; a
/// node that does not know its own host names only the port.
std::optional<Redirection> redirection_to(Redirection::Kind kind, std::string_view text) {
  const auto place = text.substr(text.rfind(' ') + 1);
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const bool same_host = colon == 0;
  auto to = announced(same_host ? "same" : place.substr(0, colon), place.substr(colon + 1));
  if (!to) return std::nullopt;
  if (same_host) to->host.clear();
  return Redirection{kind, *to};
}

std::uint16_t crc16(std::string_view bytes) {
  constexpr std::uint16_t polynomial = 0x1021;
  std::uint16_t crc = 0;
  for (const char byte : bytes) {
    crc = static_cast<std::uint16_t>(crc ^ (static_cast<unsigned char>(byte) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = (crc & 0x8000) != 0;
      crc = static_cast<std::uint16_t>((crc << 1) ^ (carry ? polynomial : 0));
    }
  }
  return crc;
}

/// Parses `[host, port, id, ...]`. A node that does not know its own host sends nil, "" or "?". The
/// result is empty if the address is impossible.
std::optional<NodeAddress> node_in(const Reply& reply, const NodeAddress& asked) {
  if (!reply.is_array(2) || reply.items[1].kind != Reply::Kind::integer) return std::nullopt;
  const std::string& host = reply.items[0].text;
  const bool unknown = host.empty() || host == "?";
  return announced(unknown ? asked.host : host, std::to_string(reply.items[1].integer));
}

}  // namespace

std::optional<Redirection> redirection_in(const Reply& reply) {
  if (!reply.is_error()) return std::nullopt;
  const std::string_view text = reply.text;
  const auto code = text.substr(0, text.find(' '));
  if (code == "MOVED") return redirection_to(Redirection::Kind::moved, text);
  if (code == "ASK") return redirection_to(Redirection::Kind::ask, text);
  for (const auto* later : {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"}) {
    if (code == later) return Redirection{};
  }
  return std::nullopt;
}

int slot_of(std::string_view name) {
  const auto open = name.find('{');
  const auto close = open == std::string_view::npos ? open : name.find('}', open + 1);
  const bool tagged = close != std::string_view::npos && close > open + 1;
  return crc16(tagged ? name.substr(open + 1, close - open - 1) : name) % slot_count;
}

void SlotMap::learn(const Reply& reply, const NodeAddress& asked) {
  SlotMap told;
  for (const Reply& range : reply.items) {
    const auto master = node_in(reply_item(range, 2), asked);
    if (!master) unexpected_answer();
    const auto number = told.number_of(*master);
    const auto end = std::min<std::int64_t>(reply_number(range, 1) + 1, slot_count);
    const auto begin = std::min(reply_number(range, 0), end);
    told.owners_.resize(slot_count);
    std::fill(told.owners_.begin() + begin, told.owners_.begin() + end, number);
    // The map is usable without a replica whose address is impossible.
    for (std::size_t i = 3; i < range.items.size(); ++i) {
      if (const auto replica = node_in(range.items[i], asked)) told.number_of(*replica);
    }
  }
  // A node that has forgotten the others knows less than this map.
  if (!told.is_empty() || is_empty()) *this = std::move(told);
}

std::size_t SlotMap::number_of(const NodeAddress& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  const auto index = found - nodes_.begin();
  if (found == nodes_.end()) nodes_.push_back(node);
  return static_cast<std::size_t>(index) + 1;
}

void SlotMap::move(int slot, const NodeAddress& node) {
  owners_.resize(slot_count);
  owners_[static_cast<std::size_t>(slot)] = number_of(node);
}

std::optional<NodeAddress> SlotMap::owner(int slot) const {
  const auto number = is_empty() ? 0 : owners_[static_cast<std::size_t>(slot)];
  return number == 0 ? std::nullopt : std::optional(nodes_[number - 1]);
}

int SlotMap::unserved() const {
  const auto unowned = std::count(owners_.begin(), owners_.end(), 0U);
  return is_empty() ? slot_count : static_cast<int>(unowned);
}

std::vector<NodeAddress> SlotMap::masters() const {
  std::vector<NodeAddress> masters;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const bool has_slots = std::find(owners_.begin(), owners_.end(), i + 1) != owners_.end();
    if (has_slots) masters.push_back(nodes_[i]);
  }
  return masters;
}

/// Routes one request to the node that serves its slot.
class ClusterRouter::RoutedCall {
 public:
  RoutedCall(ClusterRouter& cluster, int slot, const CallOptions& call_options)
      : cluster_(cluster), slot_(slot), call_options_(call_options), backoff_(backoff_of_redis()) {}

  /// Tries until `attempt` is answered. Returns whether a node may have executed an earlier try
  /// too.
  bool run(const Try& attempt) {
    while (!try_once(attempt)) {
    }
    return may_be_done_;
  }

 private:
  /// The share of the time left that one node gets, so that another can answer if it is silent.
  CallOptions share() const {
    constexpr milliseconds least{100};
    const auto left = left_until(call_options_.deadline);
    const std::size_t others = cluster_.map_.is_empty() ? cluster_.seeds_.size() - dead_seeds_ : 2;
    const auto longest = std::max(left / static_cast<int>(others), std::min(left, least));
    CallOptions part = at_most(longest, call_options_);
    part.sent = call_options_.sent;
    return part;
  }

  bool try_once(const Try& attempt) {
    const auto& next_seed = cluster_.seeds_[cluster_.seed_];
    const auto asked_over = std::exchange(asked_over_, std::nullopt);
    const NodeAddress address = asked_over.value_or(cluster_.map_.owner(slot_).value_or(next_seed));
    RedisClient& node = cluster_.node_at(address);
    const bool was_open = node.is_open();
    const int links = node.links();
    try {
      const Reply& reply = attempt(node, share(), asked_over.has_value());
      // A link that this try has opened brought a new map, if no other link has replaced it since.
      if (node.links() != links && node.is_open() && !node.answers().empty()) {
        cluster_.learn_map(node, node.answers().front(), address);
      }
      const auto redirection = redirection_in(reply);
      if (redirection) follow(*redirection, server_error(reply, node.name()), address);
      const bool is_news = !redirection && !asked_over && cluster_.map_.owner(slot_) != address;
      if (is_news) cluster_.map_.move(slot_, address);
      return !redirection;
    } catch (const Error& error) {
      // A link that is still open has brought an answer, and another node would give the same.
      if (error.kind() != ErrorKind::unavailable || node.is_open()) throw;
      may_be_done_ = may_be_done_ || was_open || node.links() != links;
      ask_others(error, address);
    }
    return false;
  }

  void follow(const Redirection& redirection, const Error& error, const NodeAddress& address) {
    constexpr int most_redirections = 5, usual_redirections = 2;
    if (redirection.kind == Redirection::Kind::later) {
      redirections_ = 0;
      pause_after(error);
      refresh(address);
      return;
    }
    NodeAddress to = redirection.to;
    if (to.host.empty()) to.host = address.host;
    // Two nodes may disagree for a moment about the owner of a slot that has just moved.
    const bool pauses = ++redirections_ > usual_redirections;
    if (redirections_ > most_redirections || (pauses && !backoff_.fits(call_options_.deadline))) {
      throw_unavailable(cluster_.name_ +
                        ": its nodes send each other's requests round in circles: " + error.what());
    }
    if (pauses) pause(backoff_.next(), call_options_);
    if (redirection.kind == Redirection::Kind::moved) {
      cluster_.map_.move(slot_, to);
    } else {
      asked_over_ = to;
    }
  }

  void ask_others(const Error& error, const NodeAddress& address) {
    redirections_ = 0;
    const auto& seeds = cluster_.seeds_;
    if (address == seeds[cluster_.seed_]) cluster_.seed_ = (cluster_.seed_ + 1) % seeds.size();
    if (!first_error_) first_error_ = error;
    if (cluster_.map_.is_empty()) {
      if (++dead_seeds_ == seeds.size()) cluster_.give_up(seeds.size(), *first_error_);
      return;
    }
    refresh(address);
    pause_after(error);
  }

  /// Takes at most half of the time left, since the request itself needs some. Without a new map
  /// the next try goes by the old one.
  void refresh(const NodeAddress& avoided) {
    try {
      cluster_.refresh(avoided, at_most(left_until(call_options_.deadline) / 2, call_options_));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
    }
  }

  /// Throws the first error if no time is left: the last try had hardly any time, and so its error
  /// says less.
  void pause_after(const Error& error) {
    if (!first_error_) first_error_ = error;
    if (!backoff_.fits(call_options_.deadline)) throw Error(*first_error_);
    pause(backoff_.next(), call_options_);
  }

  ClusterRouter& cluster_;
  int slot_;
  CallOptions call_options_;
  Backoff backoff_;
  std::optional<NodeAddress> asked_over_;  ///< the node that an ASK named
  int redirections_ = 0;                   ///< how many redirections came in a row
  std::size_t dead_seeds_ = 0;
  std::optional<Error> first_error_;
  bool may_be_done_ = false;
};

ClusterRouter::ClusterRouter(std::vector<Endpoint> seeds, RedisStoreOptions options)
    : options_(std::move(options)),
      login_(seeds.front()),
      name_(deployment_name("cluster", seeds, seeds.front().tls.has_value())) {
  options_.may_move = true;
  for (const Endpoint& seed : seeds) seeds_.push_back({seed.host, seed.port});
}

RedisClient& ClusterRouter::node_at(const NodeAddress& address) {
  auto& node = nodes_[address];
  if (!node) {
    node = std::make_unique<RedisClient>(endpoint_at(login_, address), options_,
                                         Handshake{{{"CLUSTER", "SLOTS"}}, false});
  }
  return *node;
}

ScriptReply ClusterRouter::run_script(const ScriptRun& run, const CallOptions& call_options) {
  ScriptReply reply;
  ScriptRun at_node = run;
  RoutedCall call(*this, slot_of(run.keys.front()), call_options);
  const bool may_be_done =
      call.run([&](RedisClient& node, const CallOptions& share, bool asking) -> const Reply& {
        if (!run.channel.empty()) listening_ = &node;
        at_node.asking = asking;
        return reply = node.run_script(at_node, share);
      });
  reply.sent_twice = reply.sent_twice || may_be_done;
  return reply;
}

std::variant<std::string, Wake::Reason> ClusterRouter::next_message(const std::string& channel,
                                                                    Deadline until, int cancel_fd) {
  if (listening_ == nullptr) throw_unavailable(name_ + ": no node is listened to");
  return listening_->next_message(channel, until, cancel_fd);
}

void ClusterRouter::learn_map(RedisClient& node, const Reply& reply, const NodeAddress& address) {
  try {
    if (!reply.is_error()) return map_.learn(reply, address);
  } catch (const Error& error) {
    node.close();
    throw error.reworded(node.name() + ": " + error.what());
  }
  if (reply.text.find("cluster support disabled") == std::string::npos) return;
  // The server's other replies on this link must not be used either.
  node.close();
  throw_unavailable(node.name() +
                    ": it is not a node of a Cluster: write redis:// for a single server");
}

void ClusterRouter::refresh(const std::optional<NodeAddress>& avoided,
                            const CallOptions& call_options) {
  constexpr std::size_t most = 8;
  auto addresses = map_.nodes();
  for (const NodeAddress& seed : seeds_) {
    if (std::find(addresses.begin(), addresses.end(), seed) == addresses.end())
      addresses.push_back(seed);
  }
  if (avoided) std::erase(addresses, *avoided);
  const auto first = addresses.empty() ? 0 : refreshes_++ % addresses.size();
  std::rotate(addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(first),
              addresses.end());
  addresses.resize(std::min(addresses.size(), most));
  std::optional<Error> last;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto share = left_until(call_options.deadline) / static_cast<int>(addresses.size() - i);
    try {
      RedisClient& node = node_at(addresses[i]);
      const Request slots{"CLUSTER", "SLOTS"};
      const Reply reply = node.read({}, {slots}, at_most(share, call_options)).front();
      learn_map(node, reply, addresses[i]);
      if (!reply.is_error()) return;
      last = server_error(reply, node.name());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      last = error;
    }
  }
  give_up(addresses.size(), last.value_or(Error(ErrorKind::unavailable, "there is no other node")));
}

void ClusterRouter::give_up(std::size_t nodes, const Error& last) const {
  if (nodes < 2) throw last;
  throw last.reworded(name_ + ": none of " + std::to_string(nodes) +
                      " nodes is usable: " + last.what());
}

std::vector<int> ClusterRouter::connections() const {
  std::vector<int> all;
  for (const auto& [address, node] : nodes_) all.push_back(node->connections().front());
  return all;
}

bool ClusterRouter::was_reached() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return node.second->was_reached(); });
}

std::vector<Reply> ClusterRouter::read_at(int slot, const std::vector<Request>& requests,
                                          const CallOptions& call_options) {
  std::vector<Reply> replies;
  RoutedCall call(*this, slot, call_options);
  call.run([&](RedisClient& node, const CallOptions& share, bool asking) -> const Reply& {
    auto all = requests;
    if (asking) all.insert(all.begin(), {"ASKING"});
    replies = node.read({}, all, share);
    if (asking && !replies.front().is_error()) replies.erase(replies.begin());
    return replies.front();
  });
  return replies;
}

std::vector<Reply> ClusterRouter::read(const std::vector<std::string>& keys,
                                       const std::vector<Request>& requests,
                                       const CallOptions& call_options) {
  const std::size_t requests_a_key = requests.size() / keys.size();
  std::map<std::optional<NodeAddress>, std::vector<std::size_t>> requests_at;
  for (std::size_t key = 0; key < keys.size(); ++key) {
    auto& there = requests_at[map_.owner(slot_of(keys[key]))];
    for (std::size_t i = 0; i < requests_a_key; ++i) there.push_back(key * requests_a_key + i);
  }
  const auto slot_of_request = [&](std::size_t i) { return slot_of(keys[i / requests_a_key]); };
  std::vector<Reply> replies(requests.size());
  for (const auto& [address, which] : requests_at) {
    std::vector<Request> some;
    for (const std::size_t i : which) some.push_back(requests[i]);
    auto answers = read_at(slot_of_request(which.front()), some, call_options);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (redirection_in(answers[i])) {
        answers[i] = read_at(slot_of_request(which[i]), {some[i]}, call_options).front();
      }
      replies[which[i]] = std::move(answers[i]);
    }
  }
  return replies;
}

void ClusterRouter::visit_all(const CallOptions& call_options, const Visit& visit) {
  refresh(std::nullopt, at_most(silence_of_a_dead_server, call_options));
  if (const int unserved = map_.unserved(); unserved > 0) {
    throw_unavailable(name_ + ": " + std::to_string(unserved) +
                      " of its slots have no node, so nobody can tell all locks");
  }
  for (const NodeAddress& master : map_.masters()) visit(node_at(master));
}

}  // namespace dlock
