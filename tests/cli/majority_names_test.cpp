#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/dlock_binary.hpp"
#include "support/fleet.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

using Urls = std::vector<std::string>;

/// The environment in which dlock knows the test names, and only these servers.
ProcessOptions naming(const Urls& urls) {
  return {.env = {{"DLOCK_SERVER", side_by_side(urls)}, {"LD_PRELOAD", DLOCK_NAMES_SHIM}}};
}

Result run_named(const Urls& urls) {
  return dlock({"run", "-n", "-k", "k", "--", "echo", "ran"}, naming(urls));
}

/// Three who decide without anybody's help, and one server that has several names.
struct Named {
  Fleet three{{.servers = 3}};
  RedisServer server = [] {
    const RedisOptions options{.tcp = true};
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
  CHECK(ran(named.by("b.100000.test")) < stretched(milliseconds(5000)));
}

}  // namespace dlock::test
