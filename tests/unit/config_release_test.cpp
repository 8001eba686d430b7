#include <doctest/doctest.h>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

using Words = std::vector<std::string>;

constexpr char three_servers[] = "redis://a redis://b redis://c";

}  // namespace

TEST_CASE("release takes the empty token of a failed acquire, and renew does not") {
  test::Surroundings place;
  CHECK(place.resolve<ReleaseSettings>({"release", "K", "--token", ""}).token == Token{});
  CHECK(place.usage_error({"renew", "K", "--token", ""}) == "--token: the value is empty");
  place.variables["DLOCK_TOKEN"] = "";
  CHECK(place.resolve<ReleaseSettings>({"release", "K"}).token == Token{});
  CHECK(place.usage_error({"renew", "K"}).starts_with("missing token"));
  place.variables["DLOCK_TOKEN"] = "T";
  CHECK(place.resolve<ReleaseSettings>({"release", "K", "--token", ""}).token == Token{});
  CHECK(place.usage_error({"release", "K", "--token", "", "--force"}) ==
        "--force and --token exclude each other");
}

TEST_CASE("release takes the token of its flag also where DLOCK_TOKEN is set to nothing") {
  test::Surroundings place;
  place.variables["DLOCK_TOKEN"] = "";
  CHECK(place.resolve<ReleaseSettings>({"release", "K", "--token", "T"}).token == Token{"T"});
  CHECK(place.resolve<ReleaseSettings>({"release", "K", "--token", ""}).token == Token{});
  CHECK(place.usage_error({"release", "K", "--token", "T\n"}).starts_with("--token: the token "));
}

TEST_CASE("release --force reads patterns among its operands, and release with a token none") {
  const test::Surroundings place;
  ReleaseSettings settings =
      place.resolve<ReleaseSettings>({"release", "--force", "a*", "b", "a*"});
  CHECK(settings.patterns == Words{"a*"});
  CHECK(settings.keys == std::vector{LockKey{"b"}});
  settings = place.resolve<ReleaseSettings>({"release", "--force", "-k", "a*"});
  CHECK(settings.patterns.empty());
  CHECK(settings.keys == std::vector{LockKey{"a*"}});
  settings = place.resolve<ReleaseSettings>({"release", "a*", "--token", "T"});
  CHECK(settings.patterns.empty());
  CHECK(settings.keys == std::vector{LockKey{"a*"}});
  CHECK(place.usage_error({"release", "--force", "--fence", "1", "a*"}) ==
        "--fence goes with keys: \"a*\" is a pattern");
}

TEST_CASE("release --stop reads patterns and a wait, and excludes a token, --force and --hook") {
  const test::Surroundings place;
  const auto settings = place.resolve<ReleaseSettings>({"release", "--stop", "-w", "9", "a*", "b"});
  CHECK(settings.stop);
  CHECK(!settings.evict);
  CHECK(!settings.token);
  CHECK(settings.wait == std::chrono::seconds(9));
  CHECK(settings.patterns == Words{"a*"});
  CHECK(settings.keys == std::vector{LockKey{"b"}});
  CHECK(!place.resolve<ReleaseSettings>({"release", "--stop", "a"}).wait);
  for (const Words& other : {Words{"--force"}, Words{"--token", "T"}, Words{"--hook", "true"}}) {
    Words words{"release", "--stop", "a"};
    words.insert(words.end(), other.begin(), other.end());
    CHECK(place.usage_error(words).ends_with(" exclude each other"));
  }
  CHECK(place.usage_error({"release", "a", "--force", "-w", "9"}) == "--wait goes with --stop");
  CHECK(place.usage_error({"release", "a", "--token", "T", "--yes"}) ==
        "--yes goes with --force or --stop");
}

TEST_CASE(
    "where several servers decide, --min-hold is at most what a restarted server makes up for") {
  test::Surroundings place;
  const Words more{"run", "-k", "K", "--min-hold", "121s", "true"};
  const Words most{"run", "-k", "K", "--min-hold", "2m", "true"};
  CHECK(place.resolve<RunSettings>(more).min_hold == std::chrono::seconds(121));
  place.variables["DLOCK_SERVER"] = three_servers;
  CHECK(place.resolve<RunSettings>(most).min_hold == std::chrono::minutes(2));
  CHECK(place.usage_error(more) ==
        "--min-hold: at most 2m00s on a majority of servers; a server that restarts may forget "
        "a longer one");
}

}  // namespace dlock
