#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "support/dlock_binary.hpp"
#include "support/eventually.hpp"
#include "support/files.hpp"
#include "support/fleet.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

using Urls = std::vector<std::string>;

/// The environment in which dlock knows the test names, and only these servers.
ProcessOptions naming(const Urls& urls) {
  ProcessOptions options;
  options.env = {{"DLOCK_SERVER", side_by_side(urls)}, {"LD_PRELOAD", DLOCK_NAMES_SHIM}};
  return options;
}

Result run_named(const Urls& urls) {
  return dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, naming(urls));
}

void is_found(const Result& result, const std::string& one, const std::string& other) {
  CAPTURE(result.err);
  CHECK(result.exit_code == 64);
  CHECK(result.out == "");
  CHECK(count_lines(result.err) == 1);
  CHECK(
      result.err.ends_with(" " + one + " and " + other + " are the same server: name each once\n"));
}

/// Three servers, which are a majority on their own, and a fourth with several names.
struct Named {
  Fleet three{{.servers = 3}};
  RedisServer server = [] {
    RedisOptions options;
    options.tcp = true;
    return RedisServer(options);
  }();
  /// Its URL under this name.
  std::string by(const std::string& host) const {
    return "redis://" + host + ":" + std::to_string(server.port());
  }
  /// The three, with one name before and one after them.
  Urls with(const std::string& one, const std::string& other) const {
    const Urls urls = three.urls();
    return {one, urls[0], urls[1], urls[2], other};
  }
};

}  // namespace

TEST_CASE(
    "majority: one server under two names that DNS knows is refused, whichever answers first") {
  const Named named;
  const auto is_refused = [&](const std::string& one, const std::string& other) {
    // On a busy machine, the two names may be resolved later than a grant waits for them.
    Result result = run_named(named.with(named.by(one), named.by(other)));
    for (int i = 0; i < 20 && result.exit_code == 0; ++i) {
      result = run_named(named.with(named.by(one), named.by(other)));
    }
    is_found(result, named.by(one), named.by(other));
  };
  for (int i = 0; i < 10; ++i) is_refused("a.0.test", "b.0.test");
  // The three have granted the lock long before.
  for (int i = 0; i < 3; ++i) is_refused("a.0.test", "b.20.test");
  is_refused("a.20.test", "127.0.0.1");
  is_refused("127.0.0.1", "127.1");
  is_refused("0x7f000001", "127.1");
  // A waiter does not get the lock, either.
  const std::string one = named.by("a.0.test"), other = named.by("b.40.test");
  ProcessOptions alone;
  alone.env = {{"DLOCK_SERVER", side_by_side(named.three.urls())}};
  const auto is_there = [&](const char* key) {
    return named.three.server(0).command({"EXISTS", key}).number == 1;
  };
  Result waited;
  for (int i = 0; i < 20 && (i == 0 || waited.exit_code == 0 || waited.exit_code == 69); ++i) {
    Process holder = start_dlock({"run", "-k", "k", "--", "sleep", "60"}, alone);
    REQUIRE(eventually([&] { return is_there("dlock:{k}"); }));
    Process waiter =
        start_dlock({"run", "-q", "-k", "k", "--", "echo", "ran"}, naming(named.with(one, other)));
    CHECK(eventually([&] { return is_there("dlock:{k}:queue") || !waiter.running(); }));
    holder.signal(SIGTERM);
    holder.wait();
    waited = waiter.wait();
    for (std::size_t server = 0; server < 3; ++server) {
      CHECK(eventually([&] {
        return named.three.server(server).command({"EXISTS", "dlock:{k}"}).number == 0;
      }));
    }
  }
  is_found(waited, one, other);
}

TEST_CASE("majority: a name that is looked up in vain, or for long, keeps nobody from the lock") {
  const Named named;
  const std::string one = named.by("a.0.test");
  const auto ran = [&](const std::string& other) {
    const Result result = run_named(named.with(one, other));
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out == "ran\n");
    return result.duration;
  };
  ran(named.by("b.0.none.test"));
  ran(named.by("b.30.none.test"));
  // dlock waits a fifth of a second for the name.
  CHECK(ran(named.by("b.100000.test")) < stretched(milliseconds(5000)));
  // Another port means another server, whatever the name.
  CHECK(ran("redis://b.100000.test:1") < stretched(milliseconds(5000)));
}

}  // namespace dlock::test
