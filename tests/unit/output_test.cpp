#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "output/json.hpp"
#include "output/screen.hpp"
#include "output/sentences.hpp"
#include "output/table.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;

const std::string hostile = "\x1b[2Jx\n\xff\xe2\x80\xae\x07\\";
const std::string shown = R"(\x1B[2Jx\x0A\xFF\xE2\x80\xAE\x07\\)";

Who somebody(const std::string& text) { return Who{text, 42, text, text, text}; }

Holder holder(const Who& who, std::optional<milliseconds> lease_left = 24s) {
  Holder made;
  made.owner = "owner";
  made.who = who;
  made.held = 61s;
  made.lease_left = lease_left;
  made.limit = exclusive;
  made.holds = 1;
  made.fence = Fence{7};
  return made;
}

Refusal refusal(std::vector<Holder> holders, std::size_t waiting = 0) {
  Refusal made;
  made.holders = holders.size();
  made.held_by = std::move(holders);
  made.waiting = waiting;
  return made;
}

/// Whether the text contains nothing that moves a cursor or begins a line.
bool is_plain(const std::string& text) {
  return text.find('\x1b') == std::string::npos && text.find('\n') == std::string::npos &&
         text.find('\xff') == std::string::npos && text.find("\xe2\x80\xae") == std::string::npos;
}

TEST_CASE("output: a refusal reads as the manual has it") {
  const Who deploy{"web1", 4242, "deploy", "backup.sh", ""};
  CHECK(refusal_text(LockKey{"nightly"}, refusal({holder(deploy)}, 2)) ==
        "nightly is held by deploy@web1 pid 4242 (backup.sh) for 1m01s, lease 24s left, 2 waiting");
  CHECK(refusal_text(LockKey{"nightly"}, refusal({holder(deploy, std::nullopt)})) ==
        "nightly is held by deploy@web1 pid 4242 (backup.sh) for 1m01s");
}

TEST_CASE("output: whoever is refused without a holder in the way is told the reason") {
  const auto told = [](Refusal::Reason why, const std::string& reason = "") {
    Refusal made;
    made.why = why;
    made.reason = reason;
    return refusal_text(LockKey{"k"}, made);
  };
  CHECK(told(Refusal::Reason::held) == "k is free, but others wait for it");
  CHECK(told(Refusal::Reason::gone) == "k: this token was released before");
  CHECK(told(Refusal::Reason::superseded) ==
        "k: superseded by a newer --latest, which asked later");
  CHECK(told(Refusal::Reason::unready, "2 of 3 have no vote yet") == "k: 2 of 3 have no vote yet");
  CHECK(told(Refusal::Reason::split, "a server may release it yet") ==
        "k: a server may release it yet");
  CHECK(told(Refusal::Reason::split) ==
        "k is wanted by several clients at once, and none of them has a majority of the servers");
}

TEST_CASE("output: the line of one who waits promises no place where there is none") {
  Refusal standing = refusal({holder(Who{"h", 1, "u", "c", ""}, std::nullopt)}, 3);
  standing.unordered = true;
  CHECK(waiting_text(LockKey{"k"}, standing, 2s, {}) ==
        "waiting 2s for k: u@h pid 1 (c) for 1m01s");
  standing.held_by.clear();
  CHECK(waiting_text(LockKey{"k"}, standing, 2s, {}) == "waiting 2s for k: no holder");
  standing.why = Refusal::Reason::unready;
  standing.reason = "2 of 3 have no vote yet";
  CHECK(waiting_text(LockKey{"k"}, standing, 2s, {}) ==
        "waiting 2s for k: k: 2 of 3 have no vote yet");
}

TEST_CASE("output: a refusal names three holders and counts the others") {
  const Who who{"h", 1, "u", "c", "l"};
  const std::vector<Holder> five(5, holder(who, std::nullopt));
  const std::string one = "u@h pid 1 (c) [l] for 1m01s";
  CHECK(refusal_text(LockKey{"k"}, refusal(five)) ==
        "k is held by 5 owners: " + one + "; " + one + "; " + one + "; and 2 more");
}

TEST_CASE("output: a refusal escapes what others wrote") {
  const auto text = refusal_text(LockKey{hostile}, refusal({holder(somebody(hostile))}));
  CHECK(is_plain(text));
  CHECK(text == shown + " is held by " + shown + "@" + shown + " pid 42 (" + shown + ") [" + shown +
                    "] for 1m01s, lease 24s left");
}

TEST_CASE("output: the line of one who waits says the place first, and labels last") {
  Refusal standing = refusal({holder(Who{"web1", 42, "deploy", "sh", "ticket 17"})}, 3);
  standing.ahead = 1;
  Screen screen;
  screen.is_terminal = true;
  screen.columns = 120;
  CHECK(waiting_text(LockKey{"k\u00fc"}, standing, 12s, screen) ==
        "waiting 12s for k\u00fc, place 2 of 3: deploy@web1 pid 42 (sh) for 1m01s, lease 24s left "
        "[ticket 17]");
  screen.utf8 = false;
  CHECK(waiting_text(LockKey{"k\u00fc"}, standing, 12s, screen)
            .starts_with("waiting 12s for k\\xC3\\xBC, place 2 of 3: "));
  CHECK(is_plain(waiting_text(LockKey{hostile}, refusal({holder(somebody(hostile))}), 1s, screen)));
  screen.columns = 80;
  CHECK(waiting_in_vain_text(LockKey{std::string(90, 'x')}, 1s, screen) ==
        "waiting 1s for " + std::string(25, 'x') + "~: the server does not answer");
}

TEST_CASE(
    "output: on a narrow terminal the line of one who waits has shorter words, and all facts") {
  // The room in 80 columns after "dlock: ", and before the terminal's echo of ^C.
  Screen screen;
  screen.is_terminal = true;
  screen.columns = 70;
  const auto line = [&](const Who& who, const std::string& key, Refusal standing) {
    standing.held_by.front().who = who;
    const std::string text = waiting_text(LockKey{key}, standing, 65s, screen);
    CHECK(display_width(text) <= 70);
    return text;
  };
  Refusal standing = refusal({holder(Who{})}, 12);
  standing.ahead = 8;
  const Who deploy{"web1.example.com", 4194303, "deploy", "backup.sh", "ticket 17"};
  CHECK(line(deploy, "nightly", standing) ==
        "waiting 1m05s for nightly, 9/12; held 1m01s, lease 24s: deploy@web1");
  CHECK(line(Who{"w", 7, "u", "sh", ""}, "k", standing) ==
        "waiting 1m05s for k, 9/12; held 1m01s, lease 24s: u@w pid 7 (sh)");
  CHECK(line(deploy, std::string(50, 'k'), standing)
            .starts_with(
                "waiting 1m05s for kkkkkkkkk\u2026, 9/12; held 1m01s, lease 24s: deploy@web1"));
  CHECK(is_plain(line(somebody(hostile), hostile, standing)));
  standing.holders = 3;
  CHECK(line(deploy, "nightly", standing) ==
        "waiting 1m05s for nightly, 9/12; held 1m01s, lease 24s: deplo\u2026, 2 more");
  standing.holders = 1;
  standing.held_by.front().kept = true;
  CHECK(line(deploy, "nightly", standing) ==
        "waiting 1m05s for nightly, 9/12; kept 24s more: deploy@web1");
}

TEST_CASE("output: tables escape what others wrote, a row or line each") {
  KeyState state;
  state.key = LockKey{hostile};
  state.holders = {holder(somebody(hostile))};
  Waiter waiter;
  waiter.position = 1;
  waiter.who = somebody(hostile);
  waiter.limit = no_limit;
  state.waiters = {waiter};
  Screen wide;
  wide.columns = 500;
  for (const std::string& text : {key_text(state, wide), overview_text({state}, wide)}) {
    std::string lines = text;
    const auto count = std::erase(lines, '\n');
    CHECK(count == (text.starts_with("KEY") ? 2 : 3));
    CHECK(is_plain(lines));
    CHECK(lines.find(shown) != std::string::npos);
  }
}

TEST_CASE("output: columns of a table line up under their headings") {
  KeyState longer;
  longer.key = LockKey{"schl\xc3\xbcssel"};
  longer.holders = {holder(Who{"host", 1, "user", "command", ""})};
  KeyState narrow;
  narrow.key = LockKey{"k"};
  CHECK(overview_text({longer, narrow}, {}) ==
        "KEY        HOLDER     PID  COMMAND  HELD   LEASE  WAITING\n"
        "schl\xc3\xbcssel  user@host  1    command  1m01s  24s    0\n"
        "k          free       -    -        -      -      0\n");
  CHECK(overview_text({}, {}).empty());
  CHECK(key_text(narrow, {}) == "k is free; nobody has locked it in the last seven days\n");
}

TEST_CASE("output: a latch stands above the lock of its name, or alone") {
  KeyState state{LockKey{"build"}, {}, {}, LatchState{4, 2, milliseconds(7'140'000)}};
  const std::string shut = "build\n  latch shut, 2 of 4 have arrived, ends in 1h59m\n";
  CHECK(key_text(state, {}) == shut);
  CHECK(overview_text({state}, {}) ==
        "KEY    HOLDER  PID  COMMAND  HELD  LEASE  WAITING  LATCH\n"
        "build  -       -    -        -     -      0        2/4\n");
  CHECK(key_json(state) ==
        "{\"key\":\"build\",\"holders\":[],\"waiters\":[],\"latch\":{\"count\":4,\"arrived\":2,"
        "\"open\":false,\"left_ms\":7140000}}\n");
  state.holders = {holder(Who{"host", 1, "user", "command", ""})};
  CHECK(key_text(state, {}).starts_with(shut + "  held by user@host"));
  CHECK(overview_text({state, KeyState{LockKey{"other"}}}, {}) ==
        "KEY    HOLDER     PID  COMMAND  HELD   LEASE  WAITING  LATCH\n"
        "build  user@host  1    command  1m01s  24s    0        2/4\n"
        "other  free       -    -        -      -      0        -\n");
  state.latch->arrived = 4;
  CHECK(
      key_text(state, {}).starts_with("build\n  latch open, 4 of 4 have arrived, ends in 1h59m\n"));
  age_by(state, milliseconds(7'200'000));
  CHECK(state.latch->left == milliseconds(0));
}

TEST_CASE("output: JSON stays JSON whatever others wrote") {
  KeyState state;
  state.key = LockKey{hostile};
  state.holders = {holder(somebody(hostile))};
  const std::string text = key_json(state);
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(text.find('\x1b') == std::string::npos);
  const auto object = nlohmann::json::parse(text);
  CHECK(object["holders"][0]["user"].get<std::string>().starts_with("\x1b[2Jx\n"));
  CHECK(is_plain(text.substr(0, text.size() - 1)));
  const std::string steering = "\x1b[2J\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\u00fc\U0001f512";
  state = KeyState{LockKey{steering}};
  CHECK(key_json(state) ==
        "{\"key\":\"\\u001b[2J\\u007f\\u009b\\u202e\\u2028\\u00fc\\ud83d\\udd12\""
        ",\"holders\":[],\"waiters\":[]}\n");
  CHECK(nlohmann::json::parse(key_json(state))["key"] == steering);
  RunStatus status;
  status.outcome = "error";
  status.reason = hostile;
  CHECK(nlohmann::json::parse(status_json(status))["reason"].is_string());
}

}  // namespace
}  // namespace dlock
