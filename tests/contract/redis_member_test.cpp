// Redis only: a server as a node of a quorum, and how far it trusts its memory.

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "support/fake_server.hpp"
#include "support/fault_proxy.hpp"

namespace dlock::test {
namespace {

using std::chrono::seconds;

constexpr milliseconds none{0};
constexpr milliseconds whole_guard{120'000};

RedisMember member_at(const Address& address) { return RedisMember(endpoint_at(address)); }

Answer vote(Member& member, const Claim& claim, std::int64_t proposal = 1, Ask ask = {}) {
  ask.proposal = Fence{proposal};
  return member.acquire(claim, ask, soon());
}
/// The fence of the vote; 0 if it was refused.
std::int64_t voted(Member& member, const Claim& claim, std::int64_t proposal = 1) {
  const Answer answer = vote(member, claim, proposal);
  const auto* grant = std::get_if<Grant>(&answer);
  return grant == nullptr ? 0 : grant->fence.value;
}
std::int64_t raised(Member& member, const Claim& claim, std::int64_t fence) {
  const auto grant = member.renew(claim, {.granted = Fence{fence}}, soon()).grant;
  return grant ? grant->fence.value : 0;
}
std::int64_t rejoined(Member& member, const Claim& claim, std::int64_t fence) {
  const auto grant = member.rejoin(claim, Fence{fence}, soon());
  return grant ? grant->fence.value : 0;
}
bool guarded(const Member& member) { return member.standing().quarantined_for > none; }

/// Whether a vote ends with such an Error.
bool vote_fails(Member& member, ErrorKind kind, const std::string& part,
                const CallOptions& call_options = soon()) {
  return fails([&] { member.acquire(claim_on("k"), {.proposal = Fence{1}}, call_options); }, kind,
               part);
}

RedisOptions durable() { return {.config = {"appendonly yes", "appendfsync always"}}; }

/// Whether all answers of a server are in its file, so that they survive a kill; a busy server does
/// not write at once.
bool has_written_all(const RedisServer& server) {
  return eventually([&] {
    const std::string info = server.command({"INFO", "persistence"}).text;
    return info.find("aof_buffer_length:0\r") != std::string::npos;
  });
}

bool holds(const RedisServer& server, const Claim& claim) {
  return server.command({"HEXISTS", "dlock:{" + claim.key.text + "}", claim.token.text}).number ==
         1;
}

/// Redis before 7 counts CONFIG GET and CONFIG RESETSTAT as one command.
bool shows_losses(const RedisServer& server) {
  const std::string info = server.command({"INFO", "server"}).text;
  return info.find("redis_version:6.") == std::string::npos;
}

}  // namespace

TEST_CASE("a server that has just started lets only those in who are inside, for two minutes") {
  ShimClock clock;
  RedisServer server(under(clock));
  auto member = member_at(server.address());
  const Claim first = claim_on("k"), kept = claim_on("kept");
  const auto refusal = std::get<Refusal>(vote(member, first, 1, {true, {}}));
  CHECK(refusal.why == Refusal::Reason::held);
  CHECK(refusal.ask_again_in == whole_guard);
  CHECK(refusal.waiting == 1);
  CHECK(member.standing().quarantined_for == whole_guard);
  CHECK(member.standing().process == run_id_of(server));
  CHECK(rejoined(member, kept, 7) == 7);
  CHECK(voted(member, claim_of(kept.owner.text + "/in", "kept")) == 7);
  CHECK(renew(member, kept).has_value());
  CHECK(release(member, kept) == Released::yes);
  clock.advance(whole_guard - milliseconds(1));
  CHECK(voted(member, first) == 0);
  CHECK(member.standing().quarantined_for == milliseconds(1));
  clock.advance(milliseconds(1));
  CHECK(voted(member, first) != 0);
  CHECK(!guarded(member));
  // A clock that steps back does not extend the quarantine beyond its full length.
  record_process_of(server, seconds(60));
  clock.advance(-std::chrono::hours(1));
  renew(member, first);
  CHECK(member.standing().quarantined_for == whole_guard);
  clock.advance(whole_guard);
  renew(member, first);
  CHECK(!guarded(member));
}

TEST_CASE("the memory of a server is lost with its process and with its keys") {
  RedisServer server;
  record_process_of(server);
  auto member = member_at(server.address());
  const Claim claim = claim_on("k");
  REQUIRE(voted(member, claim) != 0);
  CHECK(!guarded(member));
  server.restart();
  CHECK(!renew(member, claim));
  CHECK(member.standing().quarantined_for > whole_guard / 2);
  CHECK(member.standing().process == run_id_of(server));
  CHECK(voted(member, claim) == 0);
  record_process_of(server);
  REQUIRE(voted(member, claim) != 0);
  server.command({"FLUSHALL"});
  CHECK(voted(member, claim_on("k")) == 0);
  CHECK(guarded(member));
}

TEST_CASE("a server that has run for two minutes and lost no key votes at once for whom it meets") {
  ShimClock clock;
  RedisServer server(under(clock));
  clock.advance(whole_guard + seconds(1));
  auto member = member_at(server.address());
  if (!shows_losses(server)) {
    CHECK(voted(member, claim_on("k")) == 0);
    CHECK(member.standing().quarantined_for == whole_guard);
    return;
  }
  CHECK(voted(member, claim_on("k")) != 0);
  CHECK(!guarded(member));
  // A restarted server waits for the rest of the quarantine since its start.
  server.restart();
  clock.advance(seconds(90));
  auto again = member_at(server.address());
  CHECK(voted(again, claim_on("k")) == 0);
  CHECK(again.standing().quarantined_for > seconds(29));
  CHECK(again.standing().quarantined_for < seconds(32));
}

TEST_CASE(
    "a server that may have lost keys since it started votes two minutes after that is seen") {
  const std::vector<std::vector<std::string>> losses[] = {
      {{"FLUSHALL"}},
      {{"FLUSHDB", "ASYNC"}},
      {{"SWAPDB", "0", "1"}},
      {{"REPLICAOF", "127.0.0.1", "1"},
       {"REPLICAOF", "NO", "ONE"},
       {"DEL", "dlock:alive", "dlock:{k}", "dlock:{k}:fence"}},
      {{"EVAL", "return redis.call('FLUSHDB')", "0"}},
      {{"CONFIG", "SET", "maxmemory-policy", "allkeys-random"},
       {"SET", "dlock:{held}", std::string(100'000, 'x')},
       {"CONFIG", "SET", "maxmemory", "1"},
       {"CONFIG", "SET", "maxmemory", "0"}},
      {{"FLUSHALL"}, {"CONFIG", "RESETSTAT"}},
  };
  for (const auto& loss : losses) {
    CAPTURE(loss.front().front());
    ShimClock clock;
    RedisServer server(under(clock));
    auto member = member_at(server.address());
    clock.advance(std::chrono::hours(1));
    REQUIRE((voted(member, claim_on("k")) != 0) == shows_losses(server));
    clock.advance(whole_guard / 2);
    for (const auto& command : loss) server.command(command);
    REQUIRE(eventually([&] { return server.command({"DBSIZE"}).number == 0; }));
    CHECK(voted(member, claim_on("k")) == 0);
    CHECK(member.standing().quarantined_for == whole_guard);
    clock.advance(whole_guard);
    CHECK(voted(member, claim_on("k")) != 0);
  }
}

TEST_CASE("what survives a restart without a promise is kept, and nothing is added to it") {
  RedisServer server({.config = {"appendonly yes", "appendfsync everysec"}});
  record_process_of(server);
  auto member = member_at(server.address());
  const Claim held = claim_on("k"), other = claim_on("other");
  REQUIRE(voted(member, held) != 0);
  REQUIRE(has_written_all(server));
  server.restart();
  REQUIRE(holds(server, held));
  CHECK(voted(member, other) == 0);
  CHECK(guarded(member));
  CHECK(!holds(server, other));
  CHECK(renew(member, held).has_value());
  server.restart();
  auto waiting = member_at(server.address());
  CHECK(std::get<Refusal>(vote(waiting, other, 1, {true, {}})).waiting == 1);
  record_process_of(server);
  CHECK(voted(member, claim_on("other")) == 0);  // this admits the queue
  CHECK(news(waiting, other, Wake::Reason::granted).has_value());
}

TEST_CASE("a server that answers once it is on the disk votes at once after a restart") {
  RedisServer server(durable());
  record_process_of(server);
  const Claim held = claim_on("k"), after = claim_on("after");
  {
    auto member = member_at(server.address());
    REQUIRE(voted(member, held) != 0);
  }
  server.restart();
  {
    auto member = member_at(server.address());
    CHECK(voted(member, claim_on("k")) == 0);
    CHECK(!guarded(member));
    CHECK(voted(member, after) != 0);
    CHECK(holds(server, after));
  }
  for (const char* setting : {"appendfsync everysec", "no-appendfsync-on-rewrite yes"}) {
    CAPTURE(setting);
    const std::string name(setting, std::string_view(setting).find(' '));
    server.command({"CONFIG", "SET", name, setting + name.size() + 1});
    auto member = member_at(server.address());
    CHECK(voted(member, claim_on("before " + name)) != 0);
    REQUIRE(has_written_all(server));
    server.restart();
    CHECK(voted(member, claim_on("after " + name)) == 0);
    CHECK(guarded(member));
    record_process_of(server);
    member_at(server.address()).renew(held, {}, soon());
  }
}

TEST_CASE("a member needs INFO and ROLE, may lack CONFIG, and is no replica") {
  RedisServer server;
  record_process_of(server);
  const auto with = [&](const std::string& rule) {
    server.command({"ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", rule});
    Endpoint endpoint = endpoint_at(server.address());
    endpoint.user = "u";
    endpoint.password = "pw";
    return std::make_unique<RedisMember>(endpoint);
  };
  CHECK(vote_fails(*with("-info"), ErrorKind::denied, "+info"));
  CHECK(vote_fails(*with("-role"), ErrorKind::denied, "role"));
  CHECK_NOTHROW(vote(*with("-config"), claim_on("k")));
  RedisServer replica;
  replica.command({"REPLICAOF", "127.0.0.1", "1"});
  auto member = member_at(replica.address());
  CHECK(vote_fails(member, ErrorKind::usage, "it is a replica of 127.0.0.1:1: name"));
}

TEST_CASE("a node of a Cluster is no member") {
  const auto answers = [](const std::string& info) {
    return [info](const std::vector<std::string>& words) {
      if (words.front() == "ROLE") return say("*1\r\n$6\r\nmaster\r\n");
      if (words.front() == "INFO") {
        return say("$" + std::to_string(info.size()) + "\r\n" + info + "\r\n");
      }
      return say(words.front() == "EVALSHA" ? "-CROSSSLOT keys\r\n" : "+OK\r\n");
    };
  };
  FakeServer node(answers("# Server\r\nredis_mode:cluster\r\nrun_id:1\r\n"));
  auto of_a_cluster = member_at(node.address());
  CHECK(vote_fails(of_a_cluster, ErrorKind::unavailable, "a node of a Cluster"));
}

TEST_CASE("a server that keeps nothing is no member for longer than it takes to see that") {
  FakeServer server([](const std::vector<std::string>& words) {
    if (words.front() == "ROLE") return say("*1\r\n$6\r\nmaster\r\n");
    if (words.front() == "INFO") return say("$11\r\n#\r\nrun_id:1\r\n");
    if (words.front() != "EVALSHA") return say("+OK\r\n");
    return say("$10\r\ngone 0 0 -\r\n");
  });
  auto member = member_at(server.address());
  CHECK(fails([&] { renew(member, claim_on("k")); }, ErrorKind::unavailable, "is gone"));
}

TEST_CASE("a member's first answer takes one round trip on a new link, also a cold one's") {
  RedisServer server;
  record_process_of(server);
  FaultProxy proxy(server.address());
  auto member = member_at(proxy.address());
  proxy.hold(Direction::replies);
  std::jthread voting([&] { CHECK(voted(member, claim_on("k")) != 0); });
  CHECK(eventually([&] {
    const auto sent = proxy.recorded();
    return !sent.empty() && sent.front().find("EVALSHA") != std::string::npos;
  }));
  proxy.heal();
  voting.join();
  server.command({"SCRIPT", "FLUSH"});
  const Claim claim = claim_on("cold");
  CHECK(voted(member, claim) != 0);
  CHECK(state_of(member, "cold").holders.size() == 1);
}

TEST_CASE("a member's fence is what was proposed within a minute of its clock, and may be raised") {
  ShimClock clock;
  RedisServer server(under(clock));
  record_process_of(server);
  auto member = member_at(server.address());
  const std::int64_t now = clock.now().count(), minute = 60'000'000;
  const Claim slow = claim_on("a"), fast = claim_on("b"), exact = claim_on("c");
  CHECK(voted(member, slow, 1) == now - minute);
  CHECK(voted(member, fast, now * 2) == now + minute);
  CHECK(voted(member, exact, now + 5) == now + 5);
  CHECK(raised(member, exact, now + 9) == now + 9);
  CHECK(raised(member, exact, now + 8) == now + 9);
  server.command({"SET", "dlock:{c}:fence", std::to_string(now + 30)});
  CHECK(raised(member, exact, now + 20) == now + 9);
  CHECK(raised(member, claim_on("c"), now + 40) == 0);
  CHECK(server.command({"GET", "dlock:{c}:fence"}).text == std::to_string(now + 30));
}

TEST_CASE("a lost hold comes back past the queue, but not beside another or after its release") {
  RedisServer server;
  record_process_of(server);
  auto member = member_at(server.address()), queueing = member_at(server.address());
  Claim lost = claim_on("k"), inside = claim_on("k"), next = claim_on("k");
  REQUIRE(voted(member, inside) != 0);
  CHECK(rejoined(member, lost, 7) == 0);
  REQUIRE(std::holds_alternative<Refusal>(vote(queueing, next, 1, {true, {}})));
  server.command({"DEL", "dlock:{k}"});
  CHECK(rejoined(member, lost, 7) == 7);
  CHECK(std::stoll(server.command({"GET", "dlock:{k}:fence"}).text) > 7);  // not set back
  CHECK(release(member, lost) == Released::yes);
  CHECK(let_in(queueing, next));
}

TEST_CASE("an outer hold comes back after an inner one, and both are its owner's") {
  RedisServer server;
  record_process_of(server);
  auto member = member_at(server.address());
  const Claim outer = claim_of("a", "k"), inner = claim_of("a/i", "k");
  CHECK(rejoined(member, inner, 7) == 7);
  CHECK(rejoined(member, outer, 7) == 7);
  CHECK(state_of(member, "k").holders.size() == 1);
  CHECK(rejoined(member, claim_of("a/j", "k"), 7) == 7);
  CHECK(release(member, inner) == Released::yes);
  CHECK(holds(server, outer));
}

TEST_CASE("a vote that comes after another process has released its token is not granted") {
  RedisServer server;
  record_process_of(server);
  auto late = member_at(server.address());
  auto other = member_at(server.address());
  const Claim claim = claim_on("k");
  CHECK(release(other, claim) == Released::not_held);
  CHECK(voted(late, claim) == 0);
  CHECK(voted(late, claim_on("k")) != 0);
}

TEST_CASE("only what another process may have asked leaves a trace of its release") {
  RedisServer server;
  record_process_of(server);
  auto member = member_at(server.address());
  const auto traces = [&] { return server.command({"HLEN", "dlock:{k}"}).number; };
  const Claim asked = claim_on("k");
  voted(member, asked);
  CHECK(release(member, asked) == Released::yes);
  CHECK(traces() == 0);
  CHECK(release(member, claim_on("k")) == Released::not_held);
  CHECK(traces() == 1);
}

TEST_CASE("a member whose token another asked for, too, releases what that one got or will get") {
  RedisServer server;
  record_process_of(server);
  FaultProxy proxy(server.address());
  auto member = member_at(proxy.address()), other = member_at(server.address());
  const Claim late = claim_on("late"), got = claim_on("got");
  voted(member, late);
  server.command({"DEL", "dlock:{late}"});
  const ReleaseOptions renewed_elsewhere{ReleaseMode::normal, true};
  CHECK(member.release(late, renewed_elsewhere, soon()).outcome == Released::not_held);
  CHECK(rejoined(other, late, 7) == 0);

  auto unreached = member_at(proxy.address());
  proxy.refuse(true);
  CHECK_THROWS_AS(voted(unreached, got), Error);
  proxy.heal();
  CHECK(rejoined(other, got, 7) == 7);
  CHECK(unreached.release(got, renewed_elsewhere, soon()).outcome == Released::yes);
}

TEST_CASE("requests that reach a member twice do no harm") {
  RedisServer server;
  record_process_of(server);
  FaultProxy proxy(server.address());
  auto member = member_at(proxy.address());
  const Claim claim = claim_on("k");
  renew(member, claim);
  const auto twice = [&](auto&& request) {
    proxy.duplicate_request();
    return request();
  };
  const auto fence = twice([&] { return voted(member, claim); });
  CHECK(voted(member, claim) == fence);
  CHECK(twice([&] { return raised(member, claim, fence + 3); }) == fence + 3);
  server.command({"DEL", "dlock:{k}"});
  CHECK(twice([&] { return rejoined(member, claim, fence + 3); }) == fence + 3);
  CHECK(voted(member, claim) == fence + 3);
  CHECK(twice([&] { return release(member, claim); }) == Released::yes);
  CHECK(!holds(server, claim));
  CHECK(std::stoll(server.command({"GET", "dlock:{k}:fence"}).text) == fence + 3);
}

TEST_CASE("a release follows a broken-off vote on its link at once, and opens none") {
  RedisServer server;
  record_process_of(server);
  FaultProxy proxy(server.address());
  auto member = member_at(proxy.address());
  Event interrupt;
  interrupt.raise();
  const CallOptions interrupted{soon().deadline, interrupt.fd()};
  const Claim claim = claim_on("k");
  const auto give_back = [&] { member.release(claim, {ReleaseMode::ignore_floor}, interrupted); };
  CHECK(vote_fails(member, ErrorKind::interrupted, "", interrupted));
  CHECK(proxy.connections() == 0);
  REQUIRE(voted(member, claim_on("warm")) != 0);
  proxy.hold(Direction::replies);
  CHECK_THROWS_AS(member.acquire(claim, {.proposal = Fence{1}}, interrupted), Error);
  REQUIRE(eventually([&] { return holds(server, claim); }));
  CHECK_THROWS_AS(give_back(), Error);
  CHECK(eventually([&] { return !holds(server, claim); }));
  proxy.close_connections();
  CHECK(eventually([&] { return fails(give_back, ErrorKind::interrupted); }));
  CHECK(proxy.connections() == 1);
}

}  // namespace dlock::test
