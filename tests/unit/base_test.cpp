#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/duration.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/moment.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "support/eventually.hpp"

namespace dlock {

TEST_CASE("a duration is a number of seconds, or numbers with units, the largest first") {
  const auto ms = [](const char* text) { return parse_duration(text).value().count(); };
  CHECK(ms("10") == 10'000);
  CHECK(ms("0") == 0);
  CHECK(ms("0.25") == 250);
  CHECK(ms(".5") == 500);
  CHECK(ms(".5m") == 30'000);
  CHECK(ms("500ms") == 500);
  CHECK(ms("30s") == 30'000);
  CHECK(ms("1.5m") == 90'000);
  CHECK(ms("1h30m") == 5'400'000);
  CHECK(ms("1d") == 86'400'000);
  CHECK(ms("365d") == longest_duration.count());
}

TEST_CASE("what is finer than a millisecond is rounded up, so that nothing becomes zero") {
  CHECK(parse_duration("0.0001").value().count() == 1);
  CHECK(parse_duration("0.1ms").value().count() == 1);
}

TEST_CASE("anything else is no duration") {
  std::istringstream words(
      "s -1 +1 1x 1e3 0x10 . .s 1. 1.5.1 30m1h 1m1m 1h30 366d 99999999999999 1s5 1S 365d1ms nan "
      "1,5");
  for (std::string text; words >> text;) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text));
  }
  for (const char* text : {"", " ", "1 s", "1s "}) CHECK_FALSE(parse_duration(text));
}

TEST_CASE("people read an age in its two largest units") {
  const auto text = [](long long ms) { return human_duration(milliseconds(ms)); };
  CHECK(text(0) == "0ms");
  CHECK(text(850) == "850ms");
  CHECK(text(7'999) == "7s");
  CHECK(text(61'000) == "1m01s");
  CHECK(text(7'500'000) == "2h05m");
  CHECK(text(273'600'000) == "3d04h");
}

TEST_CASE("a number is decimal, in range, and nothing else") {
  CHECK(parse_number("42", 0, 100) == 42);
  CHECK(parse_number("007", 0, 100) == 7);
  for (const char* text :
       {"", "-1", "+1", " 1", "1 ", "101", "1x", "0x1", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number(text, 0, 100));
  }
}

TEST_CASE("text is shown as it is unless it could move the cursor or pretend") {
  CHECK(escaped("nightly backup, é 漢字 🙂") == "nightly backup, é 漢字 🙂");
  CHECK(escaped("\x1b]0;pwn\a\r\n") == "\\x1B]0;pwn\\x07\\x0D\\x0A");
  CHECK(escaped("a\\x1B") == "a\\\\x1B");
  CHECK(escaped("\x7f") == "\\x7F");
  CHECK(escaped("\xC2\x9B") == "\\xC2\\x9B");           // C1 as UTF-8
  CHECK(escaped("\xE2\x80\xAE") == "\\xE2\\x80\\xAE");  // right-to-left override
  CHECK(escaped("\xE2\x81\xA6") == "\\xE2\\x81\\xA6");  // isolate
  CHECK(escaped("\xE2\x80\xA8") == "\\xE2\\x80\\xA8");  // line separator
  CHECK(escaped("\xFF\xC0\x80") == "\\xFF\\xC0\\x80");  // invalid UTF-8, overlong
  CHECK(escaped(std::string("\0", 1)) == "\\x00");
}

TEST_CASE("UTF-8 has no overlong forms, surrogates or values beyond Unicode") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("\xF4\x8F\xBF\xBF"));
  for (const char* text : {"\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80",
                           "\xE2\x82", "\xF5\x80\x80\x80"}) {
    CHECK_FALSE(is_utf8(text));
  }
}

TEST_CASE("percent encoding is undone by decoding, whatever the bytes") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(percent_decoded(percent_encoded(all)) == all);
  CHECK(percent_encoded("a b%c{", "{") == "a%20b%25c%7B");
  CHECK(percent_decoded("100%") == "100%");
  CHECK(percent_decoded("%4") == "%4");
  CHECK(percent_decoded("%zz") == "%zz");
}

TEST_CASE("a sum past the end of time stays there") {
  CHECK(later(never, milliseconds(1)) == never);
  CHECK(later(BootClock::now(), Deadline::duration::max()) == never);
}

TEST_CASE("a wait ends at its deadline and not before, short or long") {
  for (const int ms : {5, 60}) {
    const auto deadline = later(BootClock::now(), milliseconds(ms));
    CHECK(poll_until({}, deadline) == 0);
    CHECK(BootClock::now() >= deadline);
  }
}

TEST_CASE("a raised event ends a wait of any length, until it is cleared") {
  const Event event;
  std::thread raiser([&] { event.raise(); });
  pollfd fds[] = {{-1, POLLIN, 0}, {event.fd(), POLLIN, 0}};
  CHECK(poll_until(fds, later(BootClock::now(), std::chrono::minutes(1))) == 1);
  CHECK(fds[0].revents == 0);
  CHECK(fds[1].revents == POLLIN);
  raiser.join();
  CHECK(event.raised());
  event.clear();
  CHECK_FALSE(event.raised());
}

TEST_CASE("any of several fds stands for all of them") {
  const Event first;
  const Event second;
  const int fds[] = {first.fd(), -1, second.fd()};
  const AnyOf any(fds);
  CHECK_FALSE(readable(any.fd()));
  second.raise();
  CHECK(readable(any.fd()));
}

TEST_CASE("random names do not repeat") {
  CHECK(random_hex(16).size() == 32);
  CHECK(random_hex(16) != random_hex(16));
}

TEST_CASE("a random span is any within its bound, the bound included") {
  constexpr milliseconds most{3};
  std::set<milliseconds> seen;
  for (int i = 0; i < 10'000 && seen.size() < 4; ++i) {
    const auto span = random_up_to(most);
    CHECK(span >= milliseconds(0));
    CHECK(span <= most);
    seen.insert(span);
  }
  CHECK(seen.size() == 4);
  CHECK(random_up_to(milliseconds(0)) == milliseconds(0));
}

TEST_CASE("a moment is written as ISO 8601 in UTC, with milliseconds") {
  CHECK(iso8601(WallTime(microseconds(1'767'323'045'678'901))) == "2026-01-02T03:04:05.678Z");
}

TEST_CASE("a moment is read from ISO 8601, in UTC, with an offset or by the local clock") {
  const char* zone = std::getenv("TZ");
  const std::optional<std::string> before = zone ? std::optional(zone) : std::nullopt;
  setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  const auto now = *parse_moment("2026-11-29T15:00:20Z", {});
  const auto read = [&](const std::string& text) {
    const auto moment = parse_moment(text, now);
    return moment ? iso8601(*moment) : "none";
  };
  CHECK(read("2026-11-29T17:00") == "2026-11-29T16:00:00.000Z");
  CHECK(read("2026-07-29T17:00:05") == "2026-07-29T15:00:05.000Z");
  CHECK(read("2026-11-29T17:00Z") == "2026-11-29T17:00:00.000Z");
  CHECK(read("2026-11-29T17:00:05.678Z") == "2026-11-29T17:00:05.000Z");
  CHECK(read("2026-11-29T17:00-02:30") == "2026-11-29T19:30:00.000Z");
  CHECK(read("2026-11-29T17:00:00+0100") == "2026-11-29T16:00:00.000Z");
  CHECK(read("17:00") == "2026-11-29T16:00:00.000Z");
  CHECK(read("16:00:30") == "2026-11-29T15:00:30.000Z");
  CHECK(read("16:00") == "2026-11-30T15:00:00.000Z");  // tomorrow
  CHECK(read("00:00") == "2026-11-29T23:00:00.000Z");
  for (const char* bad : {"", "soon", "17", "25:00", "17:60", "17:00x", "17:00Z", "2026-11-29",
                          "2026-02-30T17:00", "2026-11-29T17:00+", "2026-11-29T17:00Zulu"}) {
    CAPTURE(bad);
    CHECK(read(bad) == "none");
  }
  before ? setenv("TZ", before->c_str(), 1) : unsetenv("TZ");
}

TEST_CASE("a password that cannot be read fails one login, and the next one takes the last") {
  bool readable = true;
  const Password password([&](const CallOptions&) -> std::string {
    if (!readable) throw_usage("gone");
    return "pw";
  });
  readable = false;
  const auto fails = [&] {
    try {
      password.text({});
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::unavailable && std::string(error.what()) == "gone";
    }
  };
  CHECK(test::eventually(fails));
  CHECK(password.text({}) == "pw");
  CHECK(fails());
}

TEST_CASE("logins share a password that took as long to read as it is old") {
  int reads = 0;
  const Password password([&](const CallOptions&) {
    if (++reads == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    return std::to_string(reads);
  });
  CHECK(password.text({}) == "1");
  CHECK(test::eventually([&] { return password.text({}) == "2"; }));
}

}  // namespace dlock
