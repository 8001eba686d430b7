#include <doctest/doctest.h>

#include "unit/doctor_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;

/// Servers s1, s2, ... that answer; each clock is that far ahead of this host's.
std::vector<ServerFacts> servers_ahead_by(const std::vector<milliseconds>& ahead) {
  std::vector<ServerFacts> all;
  for (const milliseconds& each : ahead) {
    ServerFacts facts;
    facts.endpoint.host = "s" + std::to_string(all.size() + 1);
    facts.info.values = {{"run_id", facts.endpoint.host}};
    facts.clock = ClockOffset{each, 500us};
    all.push_back(facts);
  }
  return all;
}

std::vector<ServerFacts> so_many(std::size_t count) {
  return servers_ahead_by(std::vector<milliseconds>(count, 0ms));
}

void take_away(ServerFacts& facts) {
  const Endpoint endpoint = facts.endpoint;
  facts = ServerFacts{};
  facts.endpoint = endpoint;
  facts.unreachable = {"connection refused", Cause::none};
}

Finding of_majority(const std::vector<ServerFacts>& servers, const std::string& check) {
  return finding_of(check_quorum(servers), check);
}

TEST_CASE("doctor: of several servers those that answer are counted against those needed") {
  auto three = so_many(3);
  CHECK(of_majority(three, "majority").level == Level::ok);
  CHECK(of_majority(three, "majority").text == "3 of 3 servers reached, 2 needed: any 1 may fail");
  take_away(three[0]);
  CHECK(of_majority(three, "majority").level == Level::warning);
  CHECK(of_majority(three, "majority").text == "2 of 3 servers reached, 2 needed: 0 more may fail");
  take_away(three[2]);
  CHECK(of_majority(three, "majority").level == Level::error);
  CHECK(of_majority(three, "majority").text ==
        "1 of 3 servers reached, 2 needed: no lock can be taken");
  CHECK(of_majority(so_many(4), "majority").level == Level::warning);
}

TEST_CASE("doctor: servers that have no vote yet are not counted, for as long as that lasts") {
  auto three = so_many(3);
  three[0].quarantined_for = 20s;
  CHECK(of_majority(three, "majority").level == Level::ok);
  three[1].quarantined_for = 10s;
  CHECK(of_majority(three, "majority").level == Level::error);
  CHECK(of_majority(three, "majority").text ==
        "3 of 3 servers reached, 2 needed: no lock can be taken for another 10s");
}

TEST_CASE("doctor: one server under two names is no majority, and unknown where none is told") {
  auto three = so_many(3);
  CHECK(of_majority(three, "independence").level == Level::ok);
  three[2].info.values["run_id"] = "s1";
  CHECK(of_majority(three, "independence").level == Level::error);
  for (ServerFacts& each : three) each.info.values.clear();
  CHECK_FALSE(of_majority(three, "independence").told);
}

TEST_CASE("doctor: clocks of several servers may be a minute apart, this host's among them") {
  CHECK(of_majority(servers_ahead_by({-29s, 0s, 30s}), "clocks").level == Level::ok);
  CHECK(of_majority(servers_ahead_by({-30s, 0s, 30s}), "clocks").level == Level::error);
  CHECK(of_majority(servers_ahead_by({61s, 61s, 61s}), "clocks").level == Level::error);
  auto untold = so_many(3);
  for (ServerFacts& each : untold) each.clock.reset();
  CHECK_FALSE(of_majority(untold, "clocks").told);
}

TEST_CASE("doctor: every trouble that has a name has an advice of its own") {
  const auto last = static_cast<int>(Cause::certificate_expired);
  for (int cause = static_cast<int>(Cause::password_missing); cause <= last; ++cause) {
    if (cause == static_cast<int>(Cause::other_reply)) continue;
    CAPTURE(cause);
    CHECK(advice_on(static_cast<Cause>(cause), "otherwise") != "otherwise");
  }
  CHECK(advice_on(Cause::none, "otherwise") == "otherwise");
  CHECK(advice_on(Cause::other_reply, "otherwise") == "otherwise");
}

}  // namespace
}  // namespace dlock
