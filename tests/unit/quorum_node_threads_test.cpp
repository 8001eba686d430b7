#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "quorum/node_threads.hpp"
#include "quorum/quorum_store.hpp"
#include "support/eventually.hpp"
#include "support/process.hpp"

namespace dlock::test {
namespace {

/// Does nothing by default.
class Idle : public Member {
 public:
  ReleaseResult release(const Claim&, const ReleaseOptions&, const CallOptions&) override {
    return {Released::yes};
  }
  std::vector<KeyState> inspect(const Query&, const CallOptions&) override { return {}; }
  Answer acquire(const Claim&, const Ask&, const CallOptions&) override { return Refusal(); }
  Wake sleep(const Claim&, Deadline, int) override { return {}; }
  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions&) override { return {}; }
  std::optional<Grant> rejoin(const Claim&, Fence, const CallOptions&) override {
    return std::nullopt;
  }
  std::vector<Holder> evict(const LockKey&, const Eviction&, const CallOptions&) override {
    return {};
  }
  Fence record_max(const LockKey&, Fence fence, const CallOptions&) override { return fence; }
  std::string name() const override { return "idle"; }
  Standing standing() const override { return {}; }
};

/// Answers a release after the time `takes`, unless interrupted, and everything else at once. A
/// release or an eviction is sent after a moment, or later if the server is far; an eviction asks
/// for the holders first.
class Slow final : public Idle {
 public:
  Slow(milliseconds takes, std::atomic<bool>& sent, std::atomic<bool>& released,
       milliseconds is_sent_after = milliseconds(1))
      : takes_(takes), is_sent_after_(is_sent_after), sent_(sent), released_(released) {}

  ReleaseResult release(const Claim&, const ReleaseOptions&,
                        const CallOptions& call_options) override {
    send(call_options);
    call_options.sent->raise();
    pass(takes_, call_options);
    released_ = true;
    return {Released::yes};
  }
  std::vector<Holder> evict(const LockKey&, const Eviction&,
                            const CallOptions& call_options) override {
    pass(is_sent_after_ * 2, call_options);
    send(call_options);
    return {Holder{}};
  }

 private:
  void send(const CallOptions& call_options) {
    pass(is_sent_after_, call_options);
    sent_ = true;
  }
  static void pass(milliseconds time, const CallOptions& call_options) {
    pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}};
    if (poll_until(fds, later(BootClock::now(), time)) > 0) {
      throw Error(ErrorKind::interrupted, "interrupted");
    }
  }

  milliseconds takes_;
  milliseconds is_sent_after_;
  std::atomic<bool>& sent_;
  std::atomic<bool>& released_;
};

/// Takes longer for an inspect than the caller waits.
class Busy final : public Idle {
 public:
  explicit Busy(std::vector<std::string>& log) : log_(log) {}
  std::vector<KeyState> inspect(const Query&, const CallOptions&) override {
    poll_until({}, later(BootClock::now(), milliseconds(100)));
    return {};
  }
  Answer acquire(const Claim&, const Ask&, const CallOptions&) override {
    log_.push_back("asked");
    return Refusal();
  }
  ReleaseResult release(const Claim& claim, const ReleaseOptions&, const CallOptions&) override {
    log_.push_back("released " + claim.token.text);
    return {Released::yes};
  }

 private:
  std::vector<std::string>& log_;
};

/// Refuses every claim. Every request except a vote ends the subscription, as on a connection.
class Listened final : public Idle {
 public:
  Answer acquire(const Claim&, const Ask&, const CallOptions&) override {
    subscribed_ = true;
    return Refusal();
  }
  Wake sleep(const Claim&, Deadline until, int cancel_fd) override {
    if (!subscribed_) throw Error(ErrorKind::bug, "another request has ended the listening");
    pollfd fds[] = {{cancel_fd, POLLIN, 0}};
    poll_until(fds, until);
    return {Wake::Reason::interrupted, {}};
  }
  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions&) override {
    subscribed_ = false;
    return {};
  }

 private:
  bool subscribed_ = false;
};

/// Fails in unexpected ways.
class Odd final : public Idle {
 public:
  Wake sleep(const Claim&, Deadline, int) override { throw std::runtime_error("odd"); }
  ReleaseResult release(const Claim&, const ReleaseOptions&, const CallOptions&) override {
    throw std::runtime_error("odd");
  }
};

constexpr milliseconds long_time{20'000};

const MemberCall look = [](Member& member, const CallOptions& options) {
  return member.inspect({}, options);
};

/// Renews at once.
class Near final : public Idle {
 public:
  Renewed renew(const Claim& claim, const RenewalOptions&, const CallOptions&) override {
    return {Grant{Fence{1}, Lease{claim.ttl, later(BootClock::now(), claim.ttl)}}};
  }
};

/// Lacks every hold, and takes longer to say so than the others take for all renewals.
class Far final : public Idle {
 public:
  explicit Far(std::atomic<std::size_t>& rejoined) : rejoined_(rejoined) {}

  Renewed renew(const Claim&, const RenewalOptions&, const CallOptions& call_options) override {
    if (sleep_until(later(BootClock::now(), milliseconds(20)), call_options.cancel_fd)) {
      throw_interrupted();
    }
    return {};
  }
  std::optional<Grant> rejoin(const Claim& claim, Fence, const CallOptions&) override {
    keys_.insert(claim.key);
    rejoined_ = keys_.size();
    return std::nullopt;
  }

 private:
  std::set<LockKey> keys_;
  std::atomic<std::size_t>& rejoined_;
};

struct Outcome {
  bool sent, released;
};

/// The progress of a release that takes `takes` on a single node, when the clients are destroyed.
/// `has_answered`: the node has answered before.
Outcome outcome(milliseconds takes, bool has_answered) {
  std::atomic<bool> sent = false, released = false;
  const auto open = [&] {
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<Slow>(takes, sent, released));
    return members;
  };
  {
    ThreadedNodeClients nodes(open);
    const Deadline deadline = later(BootClock::now(), long_time);
    if (has_answered) {
      nodes.ask(0, look, deadline);
      REQUIRE(nodes.hear(deadline, -1));
    }
    nodes.ask(0, Release{claim_named({"k"}, {"t"}), {}}, deadline);
  }
  return {sent, released};
}

template <typename Kind>
OpenMembers one() {
  return [] {
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<Kind>());
    return members;
  };
}

const Vote waiting_vote{Claim(), {true, {}}, Fence{1}};

Deadline soon() { return later(BootClock::now(), long_time); }

/// Whether a store of three nodes sends the request of `ask` to the third one, which is that far.
template <typename Request>
bool is_sent_to_a_far_node(milliseconds way, Request ask) {
  std::atomic<bool> sent[3] = {}, released[3] = {};
  // On a busy machine, the far node may be later than the store waits, but not every time.
  return eventually([&] {
    QuorumStore store(std::make_unique<ThreadedNodeClients>([&] {
      std::vector<std::unique_ptr<Member>> members;
      for (const int i : {0, 1, 2}) {
        members.push_back(std::make_unique<Slow>(milliseconds(0), sent[i], released[i],
                                                 i == 2 ? way : milliseconds(0)));
      }
      return members;
    }));
    ask(store);
    return sent[2].load();
  });
}

std::size_t entries(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE(
    "nodes: a process that ends waits a moment for the release of a node that answers, no longer") {
  // On a busy machine, a moment is over soon.
  CHECK(eventually([] { return outcome(milliseconds(2), true).released; }));
  const auto begun = BootClock::now();
  CHECK_FALSE(outcome(long_time / 2, true).released);
  CHECK_FALSE(outcome(long_time / 2, false).released);
  CHECK(BootClock::now() - begun < long_time / 2);
}

TEST_CASE("nodes: a process that ends sends a release to a node that never answered") {
  CHECK(eventually([] { return outcome(long_time, false).sent; }));
}

TEST_CASE("nodes: a release is sent to a node that is farther than the others, too") {
  CHECK(is_sent_to_a_far_node(milliseconds(60), [](QuorumStore& store) {
    CHECK(store.release(claim_named({"k"}, {"t"}), {}, {soon(), -1}).outcome == Released::yes);
  }));
}

TEST_CASE("nodes: an eviction is sent to a node that is farther than the others, too") {
  CHECK(is_sent_to_a_far_node(milliseconds(150), [](QuorumStore& store) {
    store.evict({"k"}, {std::nullopt, Who()}, {soon(), -1});
  }));
}

TEST_CASE("nodes: a node learns of a dropped vote before it releases it") {
  // On a busy machine, a moment is over soon.
  CHECK(eventually([] {
    std::vector<std::string> log;
    {
      ThreadedNodeClients nodes([&] {
        std::vector<std::unique_ptr<Member>> members;
        members.push_back(std::make_unique<Busy>(log));
        return members;
      });
      Vote vote = waiting_vote;
      vote.claim.token = Token{"t"};
      nodes.ask(0, Renewal{claim_named({"k"}, {"t"}), {}}, soon());
      nodes.hear(soon(), -1);
      nodes.ask(0, look, soon());
      nodes.ask(0, vote, soon());
      nodes.ask(0, Release{claim_named({"k"}, {"t"}), {}}, soon());
    }
    return log == std::vector<std::string>{"released t"};
  }));
}

TEST_CASE("nodes: a request that ends the listening at a node is not an error of the node") {
  ThreadedNodeClients nodes(one<Listened>());
  nodes.ask(0, waiting_vote, soon());
  REQUIRE(nodes.hear(soon(), -1));
  nodes.ask(0, Renewal{claim_named({"k"}, {"t"}), {}}, soon());
  REQUIRE(nodes.hear(soon(), -1));
  nodes.ask(0, look, soon());
  const auto heard = nodes.hear(soon(), -1);
  REQUIRE(heard);
  CHECK(std::holds_alternative<std::vector<KeyState>>(heard->response));
}

TEST_CASE("nodes: every failure of a node is an answer") {
  ThreadedNodeClients nodes(one<Odd>());
  nodes.ask(0, waiting_vote, soon());
  REQUIRE(nodes.hear(soon(), -1));
  const auto news = nodes.hear(soon(), -1);
  REQUIRE(news);
  CHECK(news->request == 0);
  CHECK(std::holds_alternative<Error>(news->response));
  nodes.ask(0, Release{claim_named({"k"}, {"t"}), {}}, soon());
  const auto failed = nodes.hear(soon(), -1);
  REQUIRE(failed);
  CHECK(std::holds_alternative<Error>(failed->response));
  // A request with an expired deadline is not sent.
  nodes.ask(0, Rejoining{Claim(), Fence{1}}, BootClock::now());
  const auto late = nodes.hear(soon(), -1);
  REQUIRE(late);
  CHECK(std::holds_alternative<Error>(late->response));
}

TEST_CASE(
    "nodes: before a fork no thread runs and nothing is left open, and the child may use it") {
  const auto threads = settled_thread_count();
  ThreadedNodeClients nodes(one<Listened>());
  const auto open = entries("/proc/self/fd");
  for (int i = 0; i < 3; ++i) {
    nodes.ask(0, waiting_vote, soon());
    REQUIRE(nodes.hear(soon(), -1));
    nodes.begin_anew();
    CHECK(eventually([&] { return thread_count() == threads; }));
    CHECK(entries("/proc/self/fd") == open);
  }
  const pid_t child = fork();
  if (child == 0) {
    nodes.ask(0, look, soon());
    const auto heard = nodes.hear(soon(), -1);
    _exit(heard && std::holds_alternative<std::vector<KeyState>>(heard->response) ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("nodes: a failure to open them anew changes nothing") {
  bool works = true;
  ThreadedNodeClients nodes([&] {
    if (!works) throw Error(ErrorKind::host_refused, "no more files");
    return one<Idle>()();
  });
  works = false;
  CHECK_THROWS_AS(nodes.begin_anew(), Error);
  CHECK(nodes.size() == 1);
  nodes.ask(0, look, soon());
  CHECK(nodes.hear(soon(), -1));
}

TEST_CASE("node clients: each of several holds gets back what a far server lacks of it") {
  std::atomic<std::size_t> rejoined = 0;
  QuorumStore store(std::make_unique<ThreadedNodeClients>([&] {
    std::vector<std::unique_ptr<Member>> members;
    for (int i = 0; i < 2; ++i) members.push_back(std::make_unique<Near>());
    members.push_back(std::make_unique<Far>(rejoined));
    return members;
  }));
  CHECK(eventually([&] {
    for (int i = 0; i < 6; ++i) {
      Claim claim = claim_named({"k" + std::to_string(i)}, {"t"});
      claim.ttl = long_time;
      const CallOptions call_options{later(BootClock::now(), long_time), -1};
      CHECK(store.renew(claim, {.granted = Fence{1}}, call_options).grant);
    }
    // The far server needs this long to answer all of them.
    sleep_until(later(BootClock::now(), milliseconds(300)), -1);
    return rejoined == 6;
  }));
}

}  // namespace dlock::test
