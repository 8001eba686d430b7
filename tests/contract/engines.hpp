#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "contract/deployment.hpp"
#include "local/key_file.hpp"
#include "lock/acquire.hpp"
#include "lock/store.hpp"
#include "support/clock_control.hpp"
#include "support/redis_server.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

constexpr milliseconds long_ttl{30'000};

/// Where a server or a proxy in front of one listens.
Endpoint endpoint_at(const Address& address);

/// A client of the server at `address`, with the prefix of the shipped defaults.
StorePtr redis_store(Endpoint endpoint);
/// The same of members of an etcd.
StorePtr etcd_store(const std::vector<Endpoint>& members);

/// The names of all that is there and that no key needs for its fence.
std::string litter_of(const RedisServer& server);

/// One Redis server of the test's own.
class RedisEngine {
 public:
  explicit RedisEngine(RedisOptions options = {}) : server(std::move(options)) {}

  /// Another client; it dies with the object.
  StorePtr open() { return redis_store(endpoint_at(server.address())); }

  RedisServer server;
};

/// An engine as it is deployed. What every test of the contract needs of one: a client more, the
/// engine made to stand still, and what it keeps that it should have forgotten.
class DeployedEngine {
 public:
  StorePtr open() { return deployment_->open(); }
  bool by_majority() const { return deployment_->by_majority(); }
  /// Nobody who asks for `key` gets an answer until thaw().
  void freeze(const LockKey& key) { deployment_->freeze(key); }
  void thaw() { deployment_->thaw(); }
  /// Where a majority decides, one of the servers forgets who holds `key`.
  void lose_on_one(const LockKey& key) { deployment_->lose_on_one(key); }
  /// The names of all that is there and that no key needs for its fence; of all that is held.
  std::string litter() { return deployment_->litter(); }
  /// Returns once the engine knows that of the waiters for `key` only so many live.
  void await_waiters(const std::string& key, std::size_t count) {
    deployment_->await_waiters(key, count);
  }
  /// Whether a waiter that has died is passed over at once, and not after a hand-over in vain.
  bool sees_deaths() const { return deployment_->sees_deaths(); }
  bool remembers_last_holder() const { return deployment_->remembers_last_holder(); }
  milliseconds longest(milliseconds span) const { return deployment_->longest(span); }
  milliseconds time_to_confirm(milliseconds ttl) const { return deployment_->time_to_confirm(ttl); }

 private:
  std::shared_ptr<Deployment> deployment_ = new_deployment();
};

/// The same of the local engine, in an explicit directory.
class LocalEngine {
 public:
  StorePtr open();
  static bool by_majority() { return false; }
  void freeze(const LockKey& key);
  void thaw() { frozen_.reset(); }
  static void lose_on_one(const LockKey&) {}
  static void await_waiters(const std::string&, std::size_t) {}
  static bool sees_deaths() { return true; }
  static bool remembers_last_holder() { return true; }
  static milliseconds longest(milliseconds span) { return span; }
  static milliseconds time_to_confirm(milliseconds ttl) {
    return std::min(ttl, milliseconds(2000));
  }
  std::string litter();

 private:
  TempDir dir_;
  Directory directory_{settings()};
  std::optional<KeyFile> frozen_;

  DirectorySettings settings() const { return {dir_.path(), false}; }
};

/// A request for `key` by a new owner: exclusive, upheld by renewals.
Claim claim_on(const std::string& key, milliseconds ttl = long_ttl);
Claim claim_of(const std::string& owner, const std::string& key, Limit limit = exclusive);

/// Time for an answer on a busy machine.
CallOptions soon();

/// Time for an answer that will not come.
CallOptions briefly();

/// A server whose wall clock is the shim's.
RedisOptions under(const ShimClock& clock);

/// Who evicts others, and why.
inline const Who evictor{"ops1", 42, "root", "dlock", "stuck"};

/// Asks once; the test ends where the answer is another.
Grant granted(Store& store, const Claim& claim, const Ask& ask = {});
/// The same for a lease so short that on a busy machine it may end before a majority has granted
/// it: then the votes are given back, and it asks again under another token.
Grant granted_briefly(Store& store, Claim& claim);
Refusal refused(Store& store, const Claim& claim, const Ask& ask = {});
/// Whether it is had at once.
bool enters(Store& store, const Claim& claim);
/// Joins the queue, which must be necessary.
Ticket queue_up(Store& store, const Claim& claim);
Released release(Store& store, const Claim& claim);
std::optional<Grant> renew(Store& store, const Claim& claim);

/// What there is of one key.
KeyState state_of(Store& store, const std::string& key);
/// Whether the one hold of a key stands wherever it can: of several servers those that are slow to
/// connect are asked after it was had, or for the next one alone.
bool stands_everywhere(Store& store, const std::string& key);

/// Sleeps in the queue until there is news of the kind `why`, passing over others.
std::optional<Wake> news(Store& store, const Claim& claim, Wake::Reason why);
/// Sleeps until the lock is handed over, and confirms it; asks again where what blocks has ended,
/// or what was handed over, and under another token where the votes of several servers were split.
bool let_in(Store& store, Claim& claim);

/// Counts what acquire() tells.
class Listener final : public AcquireListener {
 public:
  void waiting(const LockKey& key, const Refusal& refusal) override;
  void still_waiting(const LockKey& key, const Refusal& refusal) override;
  void let_in(const LockKey& key, milliseconds waited) override;
  void server_lost(const std::string& why) override;
  void server_back(milliseconds away) override;

  /// Whether acquire() knows that it is in a queue: from then on it outlasts its server. Asked from
  /// another thread, as a server that lists the waiter may not have told it yet.
  bool waits() const { return waits_; }
  /// Whether it has asked again since, and listens: from then on it hears what ends its sleep, and
  /// notices that its connection breaks.
  bool listens() const { return listens_; }

  std::vector<std::string> waited_for;
  int times_let_in = 0;
  std::atomic<int> times_lost = 0;
  int times_back = 0;

 private:
  std::atomic<bool> waits_ = false;
  std::atomic<bool> listens_ = false;
};

/// acquire() in a thread of its own, by a client of its own; may be broken off.
template <typename Engine>
class LockAcquirer {
 public:
  LockAcquirer(Engine& engine, std::vector<Claim> claims,
               std::optional<milliseconds> wait = std::nullopt)
      : LockAcquirer([&engine] { return engine.open(); }, std::move(claims), wait) {}
  LockAcquirer(std::function<StorePtr()> open, std::vector<Claim> claims,
               std::optional<milliseconds> wait = std::nullopt)
      : store(open()), thread_([this, open, claims = std::move(claims), wait] {
          try {
            result_ = acquire(
                *store, claims,
                {.wait = wait, .cancel_fd = interrupt_.fd(), .open_second = open, .reached = true},
                listener);
          } catch (const std::exception& error) {
            trouble_ = error.what();
          }
          ended_ = BootClock::now();
          has_ended_ = true;
        }) {}
  ~LockAcquirer() {
    interrupt_.raise();
    if (thread_.joinable()) thread_.join();
  }

  void interrupt() { interrupt_.raise(); }
  /// What came of it; afterwards store and listener are the caller's.
  Acquired result() {
    thread_.join();
    CHECK(trouble_ == "");
    return result_;
  }
  Deadline ended() const { return ended_; }
  bool has_ended() const { return has_ended_; }

  StorePtr store;
  Listener listener;

 private:
  Event interrupt_;
  Acquired result_;
  std::string trouble_;
  Deadline ended_{};
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

/// The holds of an acquisition that must have succeeded.
std::vector<Held> had(const Acquired& acquired);

}  // namespace dlock::test

TYPE_TO_STRING_AS("redis", dlock::test::DeployedEngine);
TYPE_TO_STRING_AS("local", dlock::test::LocalEngine);

/// A test of both engines; `Engine` is the one under test.
#define TEST_OF_ENGINES(name) \
  TEST_CASE_TEMPLATE(name, Engine, dlock::test::DeployedEngine, dlock::test::LocalEngine)
