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
#include "support/eventually.hpp"
#include "support/redis_server.hpp"
#include "support/sockets.hpp"
#include "support/temp_dir.hpp"

namespace dlock::test {

constexpr milliseconds long_ttl{30'000};

/// The endpoint of a server, or of a proxy in front of it.
Endpoint endpoint_at(const Address& address);

/// A client of the server at `address`, with the default prefix.
StorePtr redis_store(Endpoint endpoint);
/// A client of these etcd members.
StorePtr etcd_store(const std::vector<Endpoint>& members);

/// The names of all stored keys that no lock needs for its fence.
std::string litter_of(const RedisServer& server);

/// A Redis server for one test.
class RedisEngine {
 public:
  explicit RedisEngine(RedisOptions options = {}) : server(std::move(options)) {}

  /// Opens another client; it must not outlive the object.
  StorePtr open() { return redis_store(endpoint_at(server.address())); }

  RedisServer server;
};

/// An engine as users deploy it, with the operations that every contract test needs: open another
/// client, stop the engine, and list data that it should have deleted.
class DeployedEngine {
 public:
  StorePtr open() { return deployment_->open(); }
  bool by_majority() const { return deployment_->by_majority(); }
  /// Requests for `key` get no answer until thaw().
  void freeze(const LockKey& key) { deployment_->freeze(key); }
  void thaw() { deployment_->thaw(); }
  /// If a majority decides, makes one of the servers forget the holder of `key`.
  void lose_on_one(const LockKey& key) { deployment_->lose_on_one(key); }
  /// The names of all stored data that no key needs for its fence, live holds included.
  std::string litter() { return deployment_->litter(); }
  /// Returns once the engine knows that only `count` waiters for `key` are alive.
  void await_waiters(const std::string& key, std::size_t count) {
    deployment_->await_waiters(key, count);
  }
  /// Whether a dead waiter is passed over at once, without a failed hand-over first.
  bool sees_deaths() const { return deployment_->sees_deaths(); }
  bool lists() const { return deployment_->lists(); }
  milliseconds clock_unsure() const { return deployment_->clock_unsure(); }
  milliseconds longest(milliseconds span) const { return deployment_->longest(span); }
  milliseconds time_to_confirm(milliseconds ttl) const { return deployment_->time_to_confirm(ttl); }

 private:
  std::shared_ptr<Deployment> deployment_ = new_deployment();
};

/// The local engine with an explicit directory.
class LocalEngine {
 public:
  StorePtr open();
  static bool by_majority() { return false; }
  void freeze(const LockKey& key);
  void thaw() { frozen_.reset(); }
  static void lose_on_one(const LockKey&) {}
  static void await_waiters(const std::string&, std::size_t) {}
  static bool sees_deaths() { return true; }
  static bool lists() { return true; }
  static milliseconds clock_unsure() { return milliseconds(0); }
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

/// An exclusive claim of a new owner on `key`, renewed by heartbeat.
Claim claim_on(const std::string& key, milliseconds ttl = long_ttl);
Claim claim_of(const std::string& owner, const std::string& key, Limit limit = exclusive);

/// Enough time for an answer on a busy machine.
CallOptions soon();

/// A short time, for an answer that will not come.
CallOptions briefly();

/// A server whose wall clock is the shim's.
RedisOptions under(const ShimClock& clock);

/// The client that evicts, with its reason.
inline const Who evictor{"ops1", 42, "root", "dlock", "stuck"};

/// Whether `work` throws an Error of this kind whose text contains `part`.
bool fails(const std::function<void()>& work, ErrorKind kind, const std::string& part = "");

/// Asks once; a refusal fails the test.
Grant granted(Store& store, const Claim& claim, const Ask& ask = {});
/// The same for a lease so short that on a busy machine it may expire before a majority has granted
/// it: then releases the votes and asks again with another token.
Grant granted_briefly(Store& store, Claim& claim);
/// A claim that `granted` has acquired.
Claim taken(Store& store, Claim claim);
Refusal refused(Store& store, const Claim& claim, const Ask& ask = {});
/// Whether the claim is granted at once.
bool enters(Store& store, const Claim& claim);
/// Asks and joins the queue; a grant fails the test.
Ticket queue_up(Store& store, const Claim& claim);
Released release(Store& store, const Claim& claim);
std::optional<Grant> renew(Store& store, const Claim& claim);

/// The state of one key.
KeyState state_of(Store& store, const std::string& key);
/// Whether the only hold of a key is on all servers that can have it: a server that is slow to
/// connect is asked after the grant, or only for the next one.
bool stands_everywhere(Store& store, const std::string& key);

/// Sleeps in the queue until a wake-up with the reason `why`; `changed` may come before it.
std::optional<Wake> news(Store& store, const Claim& claim, Wake::Reason why);
/// Sleeps until the lock is handed over, and confirms it. Asks again if the blocking hold or the
/// hand-over has expired; uses another token after a split vote.
bool let_in(Store& store, Claim& claim);

/// Counts the reports of acquire().
class Listener final : public AcquireListener {
 public:
  void waiting(const LockKey& key, const Refusal& refusal) override;
  void preempted(const LockKey&, const std::vector<Holder>&) override { ++times_asked; }
  void on_acquired(const LockKey& key) override;
  void server_lost(const std::string& why) override;
  void server_back(milliseconds away) override;

  /// Whether acquire() knows that it is queued: from then on it survives an outage. The test may
  /// not derive that from the server, which may list the waiter before it has answered.
  bool waits() const { return waits_; }
  /// Whether it has asked again since, and listens: from then on it gets wake-ups, and notices that
  /// its connection breaks.
  bool listens() const { return listens_; }

  std::vector<std::string> waited_for;
  int times_let_in = 0;
  int times_asked = 0;
  std::atomic<int> times_lost = 0;
  int times_back = 0;

 private:
  std::atomic<bool> waits_ = false;
  std::atomic<bool> listens_ = false;
};

/// Runs acquire() in its own thread with its own client; the test can interrupt it.
template <typename Engine>
class LockAcquirer {
 public:
  LockAcquirer(Engine& engine, std::vector<Claim> claims,
               std::optional<milliseconds> wait = std::nullopt, bool preempt = false)
      : LockAcquirer([&engine] { return engine.open(); }, std::move(claims), wait, preempt) {}
  LockAcquirer(std::function<StorePtr()> open, std::vector<Claim> claims,
               std::optional<milliseconds> wait = std::nullopt, bool preempt = false)
      : store(open()), thread_([this, open, claims = std::move(claims), wait, preempt] {
          try {
            result_ = acquire(*store, claims,
                              {.wait = wait,
                               .cancel_fd = interrupt_.fd(),
                               .open_second = open,
                               .preempt = preempt,
                               .reached = true},
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
  /// Its result; afterwards the caller may use store and listener.
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

/// The holds of an acquisition, which must have succeeded.
std::vector<Held> had(const Acquired& acquired);

}  // namespace dlock::test

TYPE_TO_STRING_AS("redis", dlock::test::DeployedEngine);
TYPE_TO_STRING_AS("local", dlock::test::LocalEngine);

/// A test of both engines; `Engine` is the one under test.
#define TEST_OF_ENGINES(name) \
  TEST_CASE_TEMPLATE(name, Engine, dlock::test::DeployedEngine, dlock::test::LocalEngine)
