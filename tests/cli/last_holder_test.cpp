// Tests of the last holder of a free key, of a cooldown, and of a refusal in JSON.

#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("last holder: how it ended, with the exit code of its command") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"run", "-k", "a", "--label", "build 7", "--", "sh", "-c", "exit 3"})
              .exit_code == 3);
    const auto last = place.state("a")["last"];
    CHECK(names(last) == Words{"host", "pid", "user", "command", "label", "via", "acquired_at",
                               "fence", "how", "ended_at", "exit_code"});
    CHECK(last["label"] == "build 7");
    CHECK(last["via"] == "run");
    CHECK(last["how"] == "released");
    CHECK(last["exit_code"] == 3);
    CHECK(last["ended_at"] >= last["acquired_at"]);
    const auto shown = place.dlock({"inspect", "a"}).out;
    CHECK(shown.starts_with("a is free\n  last held by "));
    CHECK(holds(shown, " (sh), [build 7],"));
    CHECK(holds(shown, ", exit code 3,"));
  });
}

TEST_CASE("last holder: by whom it was evicted, and why") {
  on_each_engine([](const Place& place) {
    place.acquired("a");
    CHECK(place.dlock({"release", "--force", "--reason", "stuck", "a"}).exit_code == 0);
    const auto last = place.state("a")["last"];
    CHECK(last["how"] == "evicted");
    CHECK(last["via"] == "acquire");
    CHECK(last["exit_code"] == nullptr);
    CHECK(names(last["evicted_by"]) == Words{"host", "pid", "user", "reason"});
    CHECK(last["evicted_by"]["reason"] == "stuck");
    CHECK(holds(place.dlock({"inspect", "a"}).out, "evicted by "));
    CHECK(holds(place.dlock({"inspect", "a"}).out, ": stuck, "));
  });
}

TEST_CASE("last holder: an attached script that has ended released it") {
  on_each_engine([](const Place& place) {
    CHECK(place.shell(R"(exec >/dev/null; "$D" acquire -k a --attach $$)").exit_code == 0);
    REQUIRE(eventually([&] { return place.is_free("a"); }));
    const auto last = place.state("a")["last"];
    CHECK(last["via"] == "attach");
    CHECK(last["how"] == "released");
    CHECK(last["exit_code"] == nullptr);
  });
}

TEST_CASE("last holder: a holder that was killed never released") {
  on_each_engine([](const Place& place) {
    auto holder = place.hold("a", {"-t", "3s"});
    holder.kill_hard();
    REQUIRE(eventually([&] { return place.is_free("a"); }));
    const auto last = place.state("a")["last"];
    CHECK(last["how"] == "lost");
    CHECK(last["pid"] == holder.pid());
    CHECK(last["ended_at"] == nullptr);
    CHECK(holds(place.dlock({"inspect", "a"}).out, "never released: "));
  });
}

TEST_CASE("last holder: inspect --free lists the free keys, too, and a terminal is not needed") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"run", "-k", "a", "--", "true"}).exit_code == 0);
    place.acquired("b");
    CHECK(!holds(place.dlock({"inspect"}).out, "\na "));
    const auto listed = place.dlock({"inspect", "--free"});
    check_quiet(listed);
    CHECK(holds(listed.out, "\na    free, last "));
    CHECK(holds(listed.out, "\nb  "));
    const auto json = place.dlock({"inspect", "--free", "--json", "a*"}).out;
    CHECK(Json::parse(json)["key"] == "a");
    CHECK(Json::parse(json)["last"]["exit_code"] == 0);
    CHECK(place.dlock({"inspect", "--json", "a*"}).out == "");
  });
}

TEST_CASE("last holder: of a cooldown it says after whom, and for how long") {
  on_each_engine([](const Place& place) {
    CHECK(place.dlock({"run", "-k", "a", "--min-hold", "10m", "--", "true"}).exit_code == 0);
    const auto held = place.state("a")["holders"][0];
    CHECK(held["mode"] == "cooldown");
    CHECK(held["cooldown_left_ms"] > 500'000);
    CHECK(held["cooldown_left_ms"] <= 600'000);
    const auto shown = place.dlock({"inspect", "a"}).out;
    CHECK(shown.starts_with("a\n  cooldown after "));
    CHECK(holds(shown, "by --min-hold"));
    CHECK(holds(place.dlock({"inspect"}).out, "\na    cooldown after "));
    check_message(place.dlock({"release", "--stop", "a"}), 0, "nobody held a");
  });
}

TEST_CASE("acquire: --json tells of a refusal who holds the key, and of a grant how long it took") {
  on_each_engine([](const Place& place) {
    const auto holder = place.hold("a", {"--label", "job 7"});
    const auto refused = place.dlock({"acquire", "--json", "-n", "-k", "a", "-t", "1m"});
    CHECK(refused.exit_code == 75);
    CHECK(count_lines(refused.out) == 1);
    const auto object = Json::parse(refused.out);
    CHECK(names(object) == Words{"token", "reason", "key", "holders", "waiters", "superseded_by"});
    CHECK(object["token"] == nullptr);
    CHECK(object["key"] == "a");
    CHECK(holds(object["reason"], "a is held by "));
    REQUIRE(object["holders"].size() == 1);
    CHECK(object["holders"][0]["pid"] == holder.pid());
    CHECK(object["holders"][0]["label"] == "job 7");
    CHECK(object["waiters"] == 0);
    CHECK(place.dlock({"acquire", "-q", "--json", "-n", "-k", "a", "-t", "1m"}).out == "");

    const auto granted = place.dlock({"acquire", "--json", "-k", "b", "-t", "1m"});
    const auto grant = Json::parse(granted.out);
    CHECK(names(grant) == Words{"token", "owner", "ttl_ms", "waited_ms", "locks"});
    CHECK(grant["owner"] == place.state("b")["holders"][0]["owner"]);
    CHECK(grant["waited_ms"] < 30'000);
  });
}

TEST_CASE("inspect: root that came by sudo is shown with the name of the user") {
  if (skip_if(!not_root_here().empty(), not_root_here())) return;
  on_each_engine([](const Place& place) {
    const auto seen = place.dlock({"run", "-k", "a", "--", dlock_path(), "inspect", "a"},
                                  {.env = {{"SUDO_USER", "eva"}}});
    CHECK(holds(seen.out, "held by root (eva)@"));
    const auto plain = place.dlock({"run", "-k", "a", "--", dlock_path(), "inspect", "a"},
                                   {.env = {{"SUDO_USER", "root"}}});
    CHECK(holds(plain.out, "held by root@"));
  });
}

}  // namespace dlock::test
