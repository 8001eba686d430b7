#include "contract/engines.hpp"

#include <algorithm>
#include <filesystem>

#include "cas/cas_store.hpp"
#include "etcd/etcd_backend.hpp"
#include "local/file_names.hpp"
#include "local/key_file.hpp"
#include "local/local_store.hpp"
#include "redis/redis_store.hpp"

namespace dlock::test {

Endpoint endpoint_at(const Address& address) {
  Endpoint endpoint;
  endpoint.socket_path = address.path;
  endpoint.host = "127.0.0.1";
  endpoint.port = address.port;
  return endpoint;
}

StorePtr redis_store(Endpoint endpoint) {
  return std::make_unique<RedisStore>(std::move(endpoint), RedisStoreOptions{});
}

StorePtr etcd_store(const std::vector<Endpoint>& members) {
  return std::make_unique<CasStore>(std::make_unique<EtcdBackend>(members, "etcd://of-the-test"),
                                    "dlock:");
}

std::string litter_of(const RedisServer& server) {
  std::string names;
  for (const Reply& name : server.command({"KEYS", "*"}).items) {
    const bool stays = name.text.ends_with(":fence") || name.text.ends_with(":alive");
    if (stays) continue;
    names += name.text + "\n";
    for (const Reply& field : server.command({"HGETALL", name.text}).items) {
      names += "  " + field.text + "\n";
    }
  }
  return names;
}

StorePtr LocalEngine::open() { return std::make_unique<LocalStore>(settings()); }

void LocalEngine::freeze(const LockKey& key) {
  frozen_.emplace(*KeyFile::open(directory_, key_file_name(key), KeyFile::Use::create, soon()));
}

std::string LocalEngine::litter() {
  std::string names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    const std::string name = entry.path().filename();
    if (!is_key_file_name(name)) names += name + "\n";
  }
  for (const KeyState& state : open()->inspect({{}, {"*"}}, soon())) {
    names += state.key.text + "\n";
  }
  return names;
}

Claim claim_on(const std::string& key, milliseconds ttl) {
  Claim claim;
  claim.key.text = key;
  claim.owner = new_owner_below(std::nullopt);
  claim.token = new_token(claim.owner);
  claim.ttl = ttl;
  claim.who = this_process("contract", "");
  return claim;
}

Claim claim_of(const std::string& owner, const std::string& key, Limit limit) {
  Claim claim = claim_on(key);
  claim.owner.text = owner;
  claim.token = new_token(claim.owner);
  claim.limit = limit;
  return claim;
}

CallOptions soon() { return {later(BootClock::now(), std::chrono::seconds(20)), -1}; }
RedisOptions under(const ShimClock& clock) { return {.env = clock.environment()}; }

CallOptions briefly() { return {later(BootClock::now(), milliseconds(150)), -1}; }

namespace {

/// Repeats the request if no server answered: a short stall of one of several servers, or an
/// election, costs an answer.
Answer answer_to(Store& store, const Claim& claim, const Ask& ask) {
  const Deadline until = soon().deadline;
  while (true) {
    try {
      return store.acquire(claim, ask, soon());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable || BootClock::now() >= until) throw;
    }
  }
}

}  // namespace

bool fails(const std::function<void()>& work, ErrorKind kind, const std::string& part) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind() == kind && std::string(error.what()).find(part) != std::string::npos;
  }
  return false;
}

Grant granted(Store& store, const Claim& claim, const Ask& ask) {
  const Answer answer = answer_to(store, claim, ask);
  REQUIRE(std::holds_alternative<Grant>(answer));
  return std::get<Grant>(answer);
}

Claim taken(Store& store, Claim claim) {
  granted(store, claim);
  return claim;
}

Grant granted_briefly(Store& store, Claim& claim) {
  Answer answer;
  const auto is_had = [&] {
    answer = answer_to(store, claim, {});
    const auto* refusal = std::get_if<Refusal>(&answer);
    if (refusal == nullptr) return true;
    REQUIRE(refusal->why == Refusal::Reason::split);
    release(store, claim);
    claim.token = new_token(claim.owner);
    return false;
  };
  REQUIRE(eventually(is_had));
  return std::get<Grant>(answer);
}

Refusal refused(Store& store, const Claim& claim, const Ask& ask) {
  const Answer answer = answer_to(store, claim, ask);
  REQUIRE(std::holds_alternative<Refusal>(answer));
  return std::get<Refusal>(answer);
}

bool enters(Store& store, const Claim& claim) {
  const Answer answer = answer_to(store, claim, {});
  const auto* refusal = std::get_if<Refusal>(&answer);
  // The votes of a split stay with the claim until it releases them.
  if (refusal != nullptr && refusal->why == Refusal::Reason::split) release(store, claim);
  return refusal == nullptr;
}

Ticket queue_up(Store& store, const Claim& claim) {
  const Refusal refusal = refused(store, claim, {true, {}});
  REQUIRE(refusal.why == Refusal::Reason::held);
  return refusal.ticket;
}

Released release(Store& store, const Claim& claim) {
  return store.release(claim, {}, soon()).outcome;
}

std::optional<Grant> renew(Store& store, const Claim& claim) {
  return store.renew(claim, {}, soon()).grant;
}

KeyState state_of(Store& store, const std::string& key) {
  const auto states = store.inspect({{LockKey{key}}, {}}, soon());
  REQUIRE(states.size() == 1);
  return states.front();
}

bool stands_everywhere(Store& store, const std::string& key) {
  const Holder holder = state_of(store, key).holders.at(0);
  return holder.held_on == holder.servers;
}

std::optional<Wake> news(Store& store, const Claim& claim, Wake::Reason why) {
  const Deadline until = soon().deadline;
  while (BootClock::now() < until) {
    const Wake wake = store.sleep(claim, until, -1);
    if (wake.why == why) return wake;
    if (wake.why != Wake::Reason::changed) return std::nullopt;
  }
  return std::nullopt;
}

bool let_in(Store& store, Claim& claim) {
  // Over several servers, a hand-over to another client may first have to expire.
  constexpr milliseconds some_turns{30'000};
  const Deadline end = later(BootClock::now(), some_turns);
  std::optional<Ticket> ticket;
  bool queued = true;
  for (auto until = end; BootClock::now() < end;) {
    const Wake wake = queued ? store.sleep(claim, until, -1) : Wake{};
    if (wake.why == Wake::Reason::granted) {
      if (renew(store, claim)) return true;
      // On a busy machine, the hand-over may expire before it is confirmed, unless the message gave
      // it a lease.
      if (wake.grant && BootClock::now() < wake.grant->lease.valid_until) return false;
    }
    until = std::min(end, wake.ask_again_at);
    if (wake.why == Wake::Reason::changed) continue;
    const Answer answer = answer_to(store, claim, {true, ticket});
    const auto* refusal = std::get_if<Refusal>(&answer);
    if (refusal == nullptr) return true;
    queued = refusal->why != Refusal::Reason::split;
    if (!queued || refusal->why == Refusal::Reason::held) ticket = refusal->ticket;
    if (!queued) {
      release(store, claim);
      claim.token = new_token(claim.owner);
    }
    until = std::min(end, later(BootClock::now(), refusal->ask_again_in));
  }
  return false;
}

void Listener::waiting(const LockKey& key, const Refusal&) {
  const bool known = !waited_for.empty() && waited_for.back() == key.text;
  if (!known) waited_for.push_back(key.text);
  listens_ = known;
  waits_ = true;
}
void Listener::on_acquired(const LockKey&) { ++times_let_in; }
void Listener::server_lost(const std::string&) { ++times_lost; }
void Listener::server_back(milliseconds) { ++times_back; }

std::vector<Held> had(const Acquired& acquired) {
  REQUIRE(std::holds_alternative<std::vector<Held>>(acquired));
  return std::get<std::vector<Held>>(acquired);
}

}  // namespace dlock::test
