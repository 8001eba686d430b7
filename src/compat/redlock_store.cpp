#include "compat/redlock_store.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace dlock {
namespace {

constexpr milliseconds shortest_pause{50};
constexpr milliseconds pause_spread{200};
constexpr milliseconds time_to_release_votes{500};

/// The answers of all servers to `ask(node)`, asked at once.
template <typename Result>
struct Poll {
  std::map<std::size_t, Result> results;  ///< of the servers that answered
  std::map<std::size_t, Error> errors;    ///< of the others

  template <typename AskOne>
  Poll(const std::vector<StorePtr>& nodes, const AskOne& ask) {
    using Outcome = std::variant<Result, Error>;
    const auto outcome_of = [&ask](Store& node) -> Outcome {
      try {
        return ask(node);
      } catch (const Error& error) {
        return error;
      } catch (const std::exception& error) {
        return Error(ErrorKind::bug, error.what());
      }
    };
    // On a host that cannot start a thread, get() asks.
    constexpr auto at_once = std::launch::async | std::launch::deferred;
    std::vector<std::future<Outcome>> asked;
    for (const StorePtr& node : nodes) {
      asked.push_back(std::async(at_once, outcome_of, std::ref(*node)));
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Outcome outcome = asked[i].get();
      if (auto* result = std::get_if<Result>(&outcome)) results.emplace(i, std::move(*result));
      if (const auto* error = std::get_if<Error>(&outcome)) errors.emplace(i, *error);
    }
  }

  /// How many results are so, without those of the servers `but`.
  template <typename Is>
  std::size_t count(const Is& is, const std::set<std::size_t>& but = {}) const {
    return static_cast<std::size_t>(std::count_if(
        results.begin(), results.end(),
        [&](const auto& each) { return is(each.second) && !but.contains(each.first); }));
  }

  /// Throws if the request was interrupted, or if the servers that did not answer could make a
  /// majority of these votes. The error is the one that the user has to fix, if there is one.
  void check(std::size_t votes = 0) const {
    const std::size_t servers = results.size() + errors.size();
    const Error* worst = nullptr;
    for (const auto& [node, error] : errors) {
      if (error.kind() == ErrorKind::interrupted) throw Error(error);
      if (worst == nullptr || worst->kind() == ErrorKind::unavailable) worst = &error;
    }
    if (votes + errors.size() <= servers / 2) return;
    if (worst == nullptr) throw_unavailable("no majority");
    throw worst->reworded("no majority of " + std::to_string(servers) +
                          " servers: " + worst->what());
  }
};

}  // namespace

CallOptions RedlockStore::share_of(const CallOptions& call_options, milliseconds ttl) {
  constexpr milliseconds least{200};
  constexpr milliseconds most{1000};
  return at_most(std::clamp(ttl / 20, least, most), call_options);
}

Answer RedlockStore::acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const CallOptions share = share_of(call_options, claim.ttl);
  const Ask once{ask.wait, std::nullopt, true};  // nobody sleeps at a single server
  const Poll<Answer> poll(nodes_, [&](Store& node) { return node.acquire(claim, once, share); });
  const auto is_grant = [](const Answer& a) { return std::holds_alternative<Grant>(a); };
  const Deadline until = valid_until(sent, claim.ttl);
  const bool in_time = BootClock::now() < until;
  if (in_time && poll.count(is_grant, unsure_of(claim)) >= majority()) {
    return Grant{{}, {claim.ttl, until}};
  }
  const bool needs_unsure_votes = in_time && poll.count(is_grant) >= majority();
  release_votes(claim);
  poll.check();
  Refusal refusal;
  refusal.why = Refusal::Reason::split;
  if (needs_unsure_votes) refusal.reason = "a server may yet carry out an earlier release";
  for (const auto& [node, answer] : poll.results) {
    const auto* held = std::get_if<Refusal>(&answer);
    if (held != nullptr && !needs_unsure_votes) refusal = *held;
  }
  refusal.unordered = true;
  refusal.ask_again_in = shortest_pause + random_up_to(pause_spread);
  return refusal;
}

std::set<std::size_t> RedlockStore::unsure_of(const Claim& claim) const {
  const auto found = unsure_.find({claim.key, claim.token});
  return found == unsure_.end() ? std::set<std::size_t>() : found->second;
}

void RedlockStore::release_votes(const Claim& claim) {
  const CallOptions back{later(BootClock::now(), time_to_release_votes), -1};
  const Poll<ReleaseResult> poll(
      nodes_, [&](Store& node) { return node.release(claim, {ReleaseMode::ignore_floor}, back); });
  for (const auto& [node, error] : poll.errors) unsure_[{claim.key, claim.token}].insert(node);
}

Wake RedlockStore::sleep(const Claim&, Deadline until, int cancel_fd) {
  const bool is_cancelled = sleep_until(until, cancel_fd);
  return Wake{is_cancelled ? Wake::Reason::interrupted : Wake::Reason::due, {}};
}

Renewed RedlockStore::renew(const Claim& claim, const RenewalOptions& terms,
                            const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const CallOptions share = share_of(call_options, terms.ttl.value_or(claim.ttl));
  const Poll<Renewed> poll(nodes_, [&](Store& node) { return node.renew(claim, terms, share); });
  const auto has_grant = [](const Renewed& each) { return each.grant.has_value(); };
  if (poll.count(has_grant, unsure_of(claim)) >= majority()) {
    for (const auto& [node, each] : poll.results) {
      if (!each.grant) continue;
      const milliseconds length = each.grant->lease.length;
      return {Grant{{}, {length, valid_until(sent, length)}}};
    }
  }
  poll.check(poll.count(has_grant));
  return {};
}

ReleaseResult RedlockStore::release(const Claim& claim, const ReleaseOptions& how,
                                    const CallOptions& call_options) {
  unsure_.erase({claim.key, claim.token});
  const Poll<ReleaseResult> poll(
      nodes_, [&](Store& node) { return node.release(claim, how, call_options); });
  const auto votes =
      poll.count([](const ReleaseResult& each) { return each.outcome == Released::yes; });
  if (votes >= majority()) return {Released::yes};
  poll.check(votes);
  return {};
}

std::vector<Holder> RedlockStore::evict(const LockKey& key, std::optional<Fence> fence,
                                        const Who& by, const CallOptions& call_options) {
  const Poll<std::vector<Holder>> poll(
      nodes_, [&](Store& node) { return node.evict(key, fence, by, call_options); });
  poll.check();
  for (const auto& [node, evicted] : poll.results) {
    if (!evicted.empty()) return evicted;
  }
  return {};
}

std::vector<KeyState> RedlockStore::inspect(const Query& query, const CallOptions& call_options) {
  const Poll<std::vector<KeyState>> poll(
      nodes_, [&](Store& node) { return node.inspect(query, call_options); });
  poll.check();
  std::vector<KeyState> states;
  for (std::size_t i = 0; i < query.keys.size(); ++i) {
    KeyState state{query.keys[i]};
    std::size_t held_on = 0;
    for (const auto& [node, view] : poll.results) {
      if (view.at(i).holders.empty()) continue;
      state.holders = view.at(i).holders;
      ++held_on;
    }
    // A client that is being refused has some votes for a moment; those that did not answer may
    // have voted for it, too.
    if (held_on + poll.errors.size() < majority()) state.holders.clear();
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<int> RedlockStore::connections() const {
  std::vector<int> all;
  for (const StorePtr& node : nodes_) {
    const auto of_node = node->connections();
    all.insert(all.end(), of_node.begin(), of_node.end());
  }
  return all;
}

std::vector<Error> RedlockStore::take_troubles() {
  if (std::exchange(is_reported_, true)) return {};
  return {Error(ErrorKind::unavailable,
                name() + ": a majority as the libraries take it: no fencing token, and a server " +
                    "that restarts empty votes at once")};
}

std::string RedlockStore::name() const {
  return joined(nodes_, ", ", [](const StorePtr& node) { return node->name(); });
}

}  // namespace dlock
