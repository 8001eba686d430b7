#include <doctest/doctest.h>

#include "output/metrics.hpp"
#include "support/exposition.hpp"

namespace dlock {
namespace {

using test::parse_exposition;

TEST_CASE("metrics of keys that no dlock writes are well-formed, each key once") {
  std::vector<KeyState> states;
  for (const std::string text :
       {"\xff\xfe", "line\nfeed", "\\xFF\\xFE", "", "back\\", "\x80\"", "back\\"}) {
    KeyState state{LockKey{text}};
    state.holders.push_back(Holder{});
    states.push_back(state);
  }
  const auto found = parse_exposition(inspect_metrics(states));
  const auto& holders = found.metrics.at("dlock_holders").samples;
  CHECK(holders.size() == 5);
  CHECK(holders.contains({{"key", "\\xFF\\xFE"}}));
  CHECK(holders.contains({{"key", "line\nfeed"}}));
  CHECK(holders.contains({{"key", "\\x80\""}}));
}

TEST_CASE("metrics hold nothing that steers a terminal") {
  for (const auto& [text, label] : {std::pair<std::string, std::string>{"\x1b[2J", "\\x1B[2J"},
                                    {"\xc2\x9b", "\\xC2\\x9B"},
                                    {"a\\\x7f", "a\\\\\\x7F"},
                                    {"\xe2\x80\xae", "\\xE2\\x80\\xAE"},
                                    {"tab\t\u00fc\\", "tab\t\u00fc\\"}}) {
    const std::string shown = inspect_metrics({KeyState{LockKey{text}}});
    CAPTURE(shown);
    CHECK(parse_exposition(shown).has("dlock_holders", {{"key", label}}));
    CHECK(shown.find('\x1b') == std::string::npos);
    CHECK(shown.find("\xc2\x9b") == std::string::npos);
  }
}

TEST_CASE("metrics of nothing are nothing") { CHECK(inspect_metrics({}) == ""); }

TEST_CASE("metrics show the oldest and the shortest of several holders") {
  KeyState state{LockKey{"a"}};
  for (const int age : {3, 7, 5}) {
    Holder holder;
    holder.held = milliseconds(age * 1000 + 1);
    holder.lease_left = milliseconds(10'000 - age * 1000);
    holder.fence = Fence{age};
    holder.limit = age == 5 ? Limit{4} : no_limit;
    state.holders.push_back(holder);
    Waiter waiter;
    waiter.waiting = milliseconds(age);
    state.waiters.push_back(waiter);
  }
  const auto found = parse_exposition(inspect_metrics({state}));
  CHECK(found.at("dlock_oldest_holder_seconds", {{"key", "a"}}) == 7.001);
  CHECK(found.at("dlock_lease_left_seconds", {{"key", "a"}}) == 3);
  CHECK(found.at("dlock_oldest_waiter_seconds", {{"key", "a"}}) == 0.007);
  CHECK(found.at("dlock_fence", {{"key", "a"}}) == 7);
  CHECK(found.at("dlock_kind", {{"key", "a"}, {"kind", "semaphore"}}) == 1);
}

TEST_CASE("metrics call no run a success whose lock was lost, although its command ended with 0") {
  const WallTime end{std::chrono::seconds(1'800'000'000)};
  RunStatus status;
  status.outcome = "exited";
  const auto after = [&](std::string_view before) {
    return run_metrics({LockKey{"a"}}, status, end, before);
  };
  const auto of_a = [](const std::string& text, const char* name) {
    return parse_exposition(text).at(name, {{"key", "a"}});
  };
  const std::string good = after("");
  CHECK(of_a(good, "dlock_last_success_timestamp_seconds") == 1'800'000'000);
  CHECK(of_a(good, "dlock_losses_total") == 0);
  status.lost = true;  // with --on-lost ignore
  const std::string lost = after("");
  CHECK(of_a(lost, "dlock_last_success_timestamp_seconds") == 0);
  CHECK(of_a(lost, "dlock_losses_total") == 1);
  CHECK(of_a(after(lost), "dlock_losses_total") == 2);
  CHECK(of_a(after(good), "dlock_last_success_timestamp_seconds") == 1'800'000'000);
}

TEST_CASE("metrics count the runs since the last success, by what kept them from it") {
  const std::vector<LockKey> keys{LockKey{"a"}, LockKey{"b\"c"}};
  RunStatus good, failed, skipped, cooldown;
  good.outcome = failed.outcome = "exited";
  failed.exit_code = 1;
  skipped.outcome = cooldown.outcome = "not-acquired";
  skipped.exit_code = cooldown.exit_code = 0;  // with -E 0
  skipped.gave_up = cooldown.gave_up = GaveUp{};
  skipped.gave_up->refusal.held_by.resize(2);
  cooldown.gave_up->refusal.held_by.resize(1);
  cooldown.gave_up->refusal.held_by.front().kept = skipped.gave_up->refusal.held_by.front().kept =
      true;
  RunStatus not_ready = skipped;
  not_ready.gave_up->refusal.held_by.clear();
  RunStatus lost = good, interrupted = failed;
  lost.lost = true;
  interrupted.outcome = "interrupted";

  std::string text;
  const auto counts_after = [&](std::initializer_list<RunStatus> runs) {
    for (const RunStatus& run : runs) text = run_metrics(keys, run, {}, text);
    std::string counts;
    const auto found = parse_exposition(text);
    for (const char* result : {"skipped", "cooldown", "failed"}) {
      const double count = found.at("dlock_runs_since_success", {{"key", "a"}, {"result", result}});
      CHECK(count == found.at("dlock_runs_since_success", {{"key", "b\"c"}, {"result", result}}));
      counts += std::to_string(static_cast<int>(count)) + " ";
    }
    return counts;
  };
  CHECK(counts_after({good}) == "0 0 0 ");
  CHECK(counts_after({skipped, skipped, cooldown, failed}) == "2 1 1 ");
  CHECK(counts_after({lost, interrupted, not_ready}) == "3 1 3 ");
  CHECK(counts_after({good}) == "0 0 0 ");
}

TEST_CASE("metrics refuse what a scraper would not take") {
  const std::string head = "# HELP a b\n# TYPE a gauge\n";
  CHECK(parse_exposition(head + "a{k=\"v\"} 1\n").has("a", {{"k", "v"}}));
  for (const char* bad : {"a 1", "a 1\na 1\n", "b 1\n", "a{k=v} 1\n", "a{k=\"v\\t\"} 1\n",
                          "a{k=\"v\",k=\"v\"} 1\n", "a\n", "a x\n", "a{k=\"v} 1\n", "\n", ""}) {
    CAPTURE(bad);
    CHECK_THROWS(parse_exposition(head + bad));
  }
  CHECK_THROWS(parse_exposition("a 1\n"));
  CHECK_THROWS(parse_exposition("# TYPE a gauge\na 1\n"));
  CHECK_THROWS(parse_exposition("# HELP a b\n# TYPE a counter\na 1\n"));
  CHECK_THROWS(parse_exposition(head + "a 1\n# HELP b b\n# TYPE b gauge\nb 1\na 2\n"));
}

}  // namespace
}  // namespace dlock
