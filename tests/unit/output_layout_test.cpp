#include <doctest/doctest.h>
#include <pty.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "output/screen.hpp"
#include "output/table.hpp"
#include "support/files.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;

/// An environment variable that has another value while this object lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

Screen terminal(std::size_t columns) {
  Screen screen;
  screen.is_terminal = screen.moves_cursor = true;
  screen.columns = columns;
  return screen;
}

Holder held_by(const Who& who) {
  Holder made;
  made.who = who;
  made.held = 102s;
  made.lease_left = 24s;
  made.ttl = 30s;
  made.renewed_ago = 6s;
  made.fence = Fence{1795270103123573};
  return made;
}

/// A lock with a holder and two waiters.
KeyState busy_key(const std::string& key, const std::string& text = "deploy") {
  KeyState state;
  state.key = LockKey{key};
  state.holders = {held_by(Who{"web1", 4242, text, "backup.sh", "ticket 17"})};
  for (std::size_t i = 1; i <= 2; ++i) {
    Waiter waiter;
    waiter.position = i;
    waiter.who = Who{"web" + std::to_string(i), static_cast<pid_t>(7 * i), text, "sh", ""};
    waiter.waiting = 12s;
    state.waiters.push_back(waiter);
  }
  return state;
}

std::size_t widest(const std::string& text) {
  std::size_t columns = 0;
  for (const std::string& line : test::lines_of(text))
    columns = std::max(columns, display_width(line));
  return columns;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Keys that could break a table: CJK, emoji, combining marks, escapes, long ones.
std::vector<KeyState> odd_keys() {
  std::vector<KeyState> states;
  for (const std::string& key : {std::string("\u591c\u9593\u30d0\u30c3\u30af\u30a2\u30c3\u30d7"),
                                 std::string("\U0001F512 deploy"),
                                 std::string("cafe\u0301 e\u0301"), std::string("\x1b]0;pwn\x07"),
                                 std::string("\xe2\x80\xae"
                                             "evil"),
                                 std::string("\xff\xfe"), std::string(300, 'x')}) {
    states.push_back(busy_key(key, key));
  }
  return states;
}

TEST_CASE("layout: wide characters take two columns, joining ones none") {
  CHECK(display_width("abc") == 3);
  CHECK(display_width("\u591c\u9593") == 4);
  CHECK(display_width("\U0001F512") == 2);
  CHECK(display_width("e\u0301") == 1);
  CHECK(display_width("\u00fc\u20ac") == 2);
  CHECK(display_width("\uff21\u1100\u1161") == 4);
  CHECK(display_width("") == 0);
}

TEST_CASE("layout: a cut keeps whole characters, their marks with them, and ends in its sign") {
  const Screen screen = terminal(80);
  CHECK(screen.fitted("nightly", 7) == "nightly");
  CHECK(screen.fitted("nightly", 6) == "night\u2026");
  CHECK(screen.fitted("\u591c\u9593\u5831", 5) == "\u591c\u9593\u2026");
  CHECK(screen.fitted("\u591c\u9593\u5831", 4) == "\u591c\u2026");
  CHECK(screen.fitted("ae\u0301bcd", 3) == "ae\u0301\u2026");
  CHECK(screen.fitted("nightly", 1) == "\u2026");
  CHECK(screen.fitted("nightly", 0).empty());
}

TEST_CASE("layout: no line is wider than the terminal, whatever the keys are") {
  for (const std::size_t columns :
       {std::size_t{20}, std::size_t{40}, std::size_t{80}, std::size_t{200}}) {
    CAPTURE(columns);
    const Screen screen = terminal(columns);
    const std::string table = overview_text(odd_keys(), screen);
    CAPTURE(table);
    CHECK(widest(table) <= columns);
    // If the column of labels does not fit, each label has a line below its key.
    const std::size_t lines_a_key = columns < 80 ? 2 : 1;
    CHECK(test::lines_of(table).size() == 1 + lines_a_key * odd_keys().size());
    auto latches = odd_keys();
    for (KeyState& state : latches) state.latch = LatchState{1'000'000, 999'999, 8'639'000s};
    const std::string with_latches = overview_text(latches, screen);
    CAPTURE(with_latches);
    CHECK(widest(with_latches) <= columns);
    if (columns >= 40) CHECK(has(with_latches, "LATCH"));
    for (const KeyState& state : latches) {
      const std::string tree = key_text(state, screen);
      CAPTURE(tree);
      CHECK(widest(tree) <= columns);
      CHECK(tree.find('\x1b') == std::string::npos);
    }
  }
}

TEST_CASE("layout: columns stand below each other behind wide and joining characters") {
  const std::string table = overview_text(odd_keys(), terminal(200));
  const auto lines = test::lines_of(table);
  for (const std::string& line : lines) {
    const auto pid = line.find(" 4242 ");
    if (pid == std::string::npos) continue;
    CHECK(display_width(line.substr(0, pid)) ==
          display_width(lines.front().substr(0, lines.front().find(" PID "))));
  }
}

TEST_CASE("layout: where there is little room the key, its holder and the queue stay") {
  const std::string table = overview_text({busy_key("a-rather-long-name-of-a-lock")}, terminal(40));
  CAPTURE(table);
  const auto heading = test::lines_of(table).front();
  for (const char* kept : {"KEY", "HOLDER", "HELD", "WAITING"}) CHECK(has(heading, kept));
  CHECK(!has(heading, "PID"));
  CHECK(has(table, "a-rather"));
  CHECK(has(table, "\u2026"));
}

TEST_CASE("layout: into a pipe nothing is cut off and nothing is coloured") {
  const std::string key(300, 'x');
  for (const std::string& text :
       {overview_text({busy_key(key)}, {}), key_text(busy_key(key), {})}) {
    CHECK(has(text, key));
    CHECK(!has(text, "\x1b"));
  }
  CHECK(has(key_text(busy_key("k"), {}), "fence 1795270103123573"));
}

TEST_CASE("layout: waiters stand under their holder, in its columns, and facts below") {
  CHECK(
      key_text(busy_key("nightly"), terminal(80))
          .find("nightly\n"
                "  held by    deploy@web1 pid 4242 (backup.sh) for 1m42s,\n"
                "             [ticket 17], since 1970-01-01T00:00:00.000Z, lease 24s of 30s left,\n"
                "             renewed 6s ago by run, limit 1, fence 1795270103123573\n"
                "    1. waits deploy@web1 pid 7    (sh)        for 12s,\n") == 0);
  const auto wide = test::lines_of(key_text(busy_key("nightly"), terminal(200)));
  CHECK(wide.size() == 4);
}

TEST_CASE("layout: several servers are named, and red where no more of them may fail") {
  KeyState state = busy_key("k");
  state.holders.front().servers = 5;
  state.holders.front().held_on = 4;
  Screen screen = terminal(200);
  screen.colours = true;
  CHECK(has(key_text(state, screen), ", held on 4 of 5 servers,"));
  CHECK(has(overview_text({state}, terminal(200)), "4 of 5"));
  state.holders.front().held_on = 3;
  CHECK(has(key_text(state, screen), "\x1b[31mheld on 3 of 5 servers\x1b[0m"));
  CHECK(!has(overview_text({busy_key("k")}, terminal(200)), "SERVERS"));
}

TEST_CASE("layout: a terminal that does not read UTF-8 gets ASCII alone") {
  Screen screen = terminal(30);
  screen.utf8 = false;
  const std::string text = key_text(busy_key("schl\u00fcssel-der-sehr-sehr-lang-ist"), screen);
  CHECK(has(text, "schl\\xC3\\xBCssel"));
  CHECK(text == ascii_alone(text));
}

TEST_CASE("layout: a terminal that does not control the process is not drawn on, but has colours") {
  const Variable term("TERM", "xterm"), no_color("NO_COLOR", "");
  int master = -1, slave = -1;
  REQUIRE(openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  const Fd user(master), ours(slave);
  const Screen screen = screen_at(ours.get());
  CHECK(screen.is_terminal);
  CHECK(screen.colours);
  CHECK_FALSE(screen.moves_cursor);
}

}  // namespace
}  // namespace dlock
