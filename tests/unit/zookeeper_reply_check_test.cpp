#include "zookeeper/zookeeper_reply_check.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/jute.hpp"

namespace dlock {
namespace {

using test::jute_frame;
using test::jute_long;
using test::jute_number;
using test::jute_text;

constexpr std::int32_t create = 1, remove_node = 2, get_data = 4, set_data = 5, get_children = 12,
                       check_version = 13, multi = 14;
const std::string stat(68, '\0');

std::string session(std::int64_t id, std::int32_t timeout_ms, std::int32_t password = 16) {
  return jute_frame(jute_number(0) + jute_number(timeout_ms) + jute_long(id) +
                    jute_number(password) + std::string(16, 'p') + std::string(1, '\0'));
}

std::string request(std::int32_t number, std::int32_t operation, const std::string& rest = {}) {
  return jute_frame(jute_number(number) + jute_number(operation) + rest);
}

std::string reply(std::int32_t number, std::int32_t error, const std::string& result = {}) {
  return jute_frame(jute_number(number) + jute_long(9) + jute_number(error) + result);
}

std::string part(std::int32_t operation, const std::string& rest, bool is_last = false) {
  return jute_number(operation) + std::string(1, is_last ? '\1' : '\0') + jute_number(-1) + rest;
}

/// A connection with a session.
ZooKeeperReplyCheck connected() {
  ZooKeeperReplyCheck check(0);
  CHECK(check.take(session(5, 4000)) == session(5, 4000));
  return check;
}

bool takes(std::int32_t operation, const std::string& result, const std::string& rest = {}) {
  ZooKeeperReplyCheck check = connected();
  check.note_request(request(1, operation, rest));
  const std::string whole = reply(1, 0, result);
  const bool is_taken = check.take(whole) == whole;
  CHECK(is_taken != check.is_broken());
  return is_taken;
}

bool takes_session(const std::string& whole, std::int64_t asked_for = 0) {
  return ZooKeeperReplyCheck(asked_for).take(whole) == whole;
}

std::string names(std::int32_t count, const std::string& name) {
  std::string all = jute_number(count);
  for (std::int32_t i = 0; i < count; ++i) all += jute_text(name);
  return all + stat;
}

TEST_CASE("zookeeper: what a server sends is handed on in whole replies, however it is cut") {
  for (std::size_t step : {1U, 3U, 1000U}) {
    ZooKeeperReplyCheck check(0);
    const std::string asked = request(1, get_data) + request(-2, 11) + request(2, set_data);
    for (std::size_t at = 0; at < asked.size(); at += step) {
      check.note_request(std::string_view(asked).substr(at, step));
    }
    const std::string said = session(5, 4000) + reply(1, 0, jute_text("data") + stat) +
                             reply(-2, 0) + reply(-1, 0, jute_long(3) + jute_text("/a")) +
                             reply(2, -101);
    std::string taken;
    for (std::size_t at = 0; at < said.size(); at += step) {
      taken += check.take(std::string_view(said).substr(at, step));
    }
    CHECK(taken == said);
    CHECK(!check.is_broken());
  }
}

TEST_CASE("zookeeper: nothing follows a reply that nobody asked for") {
  for (const std::string& odd :
       {reply(1, 0), reply(2, 0, stat), reply(-4, 0), reply(-8, 0), jute_frame("short"),
        std::string(8, '\0'), jute_number(-1), jute_number(0xfffff + 1)}) {
    ZooKeeperReplyCheck check = connected();
    check.note_request(request(1, set_data));
    const std::string ping = reply(-2, 0);
    CHECK(check.take(ping + odd + ping) == ping);
    CHECK(check.is_broken());
    CHECK(check.take(ping).empty());
  }
  ZooKeeperReplyCheck asked_for = connected();
  asked_for.note_request(request(-4, 100) + request(-8, 101));
  CHECK(asked_for.take(reply(-8, 0) + reply(-4, 0)) == reply(-8, 0) + reply(-4, 0));
  CHECK(asked_for.take(reply(-4, 0)).empty());
}

TEST_CASE("zookeeper: a session has an identity and lasts for a time that can be kept") {
  CHECK(takes_session(session(5, 4000)));
  CHECK(takes_session(session(-5, 4000)));
  for (const std::int32_t timeout : {0, -1, 1, 86'400'001, INT32_MAX, INT32_MIN}) {
    CHECK(!takes_session(session(5, timeout)));
  }
  CHECK(!takes_session(session(0, 4000)));
  CHECK(!takes_session(session(5, 4000, -1)));
  CHECK(!takes_session(session(5, 4000, INT32_MAX)));
  CHECK(!takes_session(jute_frame(session(5, 4000).substr(4) + "more")));
  CHECK(!takes_session(jute_frame(session(5, 4000).substr(4, 8))));
  // A read-only session; and a session of an old server, which does not say whether it is.
  CHECK(!takes_session(jute_frame(session(5, 4000).substr(4, 36) + "\1")));
  CHECK(takes_session(jute_frame(session(5, 4000).substr(4, 36))));
}

TEST_CASE("zookeeper: a session that has expired is said to be none, where it was asked for") {
  CHECK(takes_session(session(0, 0), 5));
  CHECK(takes_session(session(6, 4000), 5));
  CHECK(takes_session(session(5, 4000), 5));
  CHECK(!takes_session(session(5, 0), 5));
}

TEST_CASE("zookeeper: a result has the shape that its request calls for") {
  CHECK(takes(get_data, jute_text("") + stat));
  CHECK(takes(get_data, jute_number(-1) + stat));
  CHECK(!takes(get_data, jute_number(-2) + stat));
  CHECK(!takes(get_data, jute_number(INT32_MAX) + stat));
  CHECK(!takes(get_data, jute_text("data")));
  CHECK(!takes(get_data, ""));
  CHECK(!takes(get_data, jute_text("data") + stat + "more"));
  CHECK(takes(set_data, stat));
  CHECK(!takes(set_data, stat.substr(1)));
  CHECK(takes(create, jute_text("/a")));
  CHECK(!takes(create, jute_number(-1)));
  CHECK(!takes(99, ""));
}

TEST_CASE("zookeeper: a list of children has as many as it says, and not too many") {
  CHECK(takes(get_children, names(0, "")));
  CHECK(takes(get_children, names(3, "name")));
  CHECK(takes(get_children, names(50'000, "name")));
  CHECK(!takes(get_children, names(50'001, "name")));
  CHECK(!takes(get_children, names(1, "")));
  CHECK(!takes(get_children, jute_number(1) + stat));
  CHECK(!takes(get_children, jute_number(-1) + stat));
  CHECK(!takes(get_children, jute_number(INT32_MAX) + jute_text("name") + stat));
}

struct Heard final : ChildListener {
  int lists = 0;
  std::vector<std::string> names;
  void begin() override {
    ++lists;
    names.clear();
  }
  void hear(std::string_view name) override { names.emplace_back(name); }
};

std::string request_for_list(std::int32_t number, const std::string& path) {
  return request(number, get_children, jute_text(path) + std::string(1, '\0'));
}

TEST_CASE("zookeeper: a list with a listener is told name by name, and the library none of it") {
  const std::string name(73, 'n');
  const std::string said = reply(-2, 0) + reply(1, 0, names(20'000, name)) + reply(2, 0, stat);
  CHECK(said.size() > ZooKeeperReplyCheck::longest);
  for (std::size_t step : {1U, 7U, 65'536U}) {
    Heard heard;
    ZooKeeperReplyCheck check = connected();
    check.listen("/a", &heard);
    check.note_request(request_for_list(1, "/a") + request(2, set_data));
    std::string taken;
    for (std::size_t at = 0; at < said.size(); at += step) {
      taken += check.take(std::string_view(said).substr(at, step));
    }
    CHECK(taken == reply(-2, 0) + reply(1, 0, names(0, "")) + reply(2, 0, stat));
    CHECK(heard.lists == 1);
    CHECK(heard.names == std::vector<std::string>(20'000, name));
  }
}

TEST_CASE("zookeeper: a listener hears the children of its node, and only while it listens") {
  Heard heard;
  ZooKeeperReplyCheck check = connected();
  check.listen("/a", &heard);
  check.note_request(request_for_list(1, "/b") + request_for_list(2, "/a"));
  CHECK(check.take(reply(1, 0, names(2, "b"))) == reply(1, 0, names(2, "b")));
  CHECK(check.take(reply(2, -101)) == reply(2, -101));
  CHECK(heard.lists == 0);
  check.note_request(request_for_list(3, "/a"));
  const std::string list = reply(3, 0, names(2, "a"));
  CHECK(check.take(list.substr(0, 30)).empty());
  CHECK(heard.names == std::vector<std::string>{"a"});
  check.listen("", nullptr);
  CHECK(check.take(list.substr(30)) == reply(3, 0, names(0, "")));
  CHECK(heard.names == std::vector<std::string>{"a"});
}

TEST_CASE("zookeeper: a list with a listener has as many names as it says, and no more") {
  const std::string a = jute_text("a");
  for (const std::string& odd :
       {jute_number(2) + a + stat, jute_number(0) + a + stat, jute_number(-1) + a + stat,
        jute_number(1) + jute_text("") + stat, jute_number(1) + jute_number(INT32_MAX) + a + stat,
        jute_number(1) + jute_number(-1) + a + stat, jute_number(1) + a, jute_number(INT32_MAX),
        jute_number(1) + a + stat + "x"}) {
    Heard heard;
    ZooKeeperReplyCheck check = connected();
    check.listen("/a", &heard);
    check.note_request(request_for_list(1, "/a"));
    CHECK(check.take(reply(1, 0, odd) + reply(-2, 0)).empty());
    CHECK(check.is_broken());
  }
}

TEST_CASE("zookeeper: the results of several changes are those of the changes") {
  const std::string rights =
      jute_number(1) + jute_number(31) + jute_text("world") + jute_text("anyone");
  const std::string end = part(-1, "", true);
  const std::string asked =
      part(check_version, jute_text("/i") + jute_number(-1)) +
      part(set_data, jute_text("/a") + jute_text("x") + jute_number(1)) +
      part(create, jute_text("/b") + jute_text("") + rights + jute_number(1)) +
      part(remove_node, jute_text("/c") + jute_number(-1)) + end;
  const std::string done = part(check_version, "") + part(set_data, stat) +
                           part(create, jute_text("/b")) + part(remove_node, "");
  const std::string refused = part(-1, jute_number(-103));
  CHECK(takes(multi, done + end, asked));
  CHECK(takes(multi, refused + refused + refused + refused + end, asked));
  CHECK(!takes(multi, end, asked));
  CHECK(!takes(multi, done, asked));
  CHECK(!takes(multi, done + refused + end, asked));
  CHECK(!takes(multi, refused + end, asked));
  CHECK(!takes(multi, refused + refused + refused + refused, asked));
  CHECK(!takes(multi, part(set_data, stat) + refused + refused + refused + end, asked));
  CHECK(!takes(multi, part(check_version, "") + part(set_data, "") + end, asked));
}

}  // namespace
}  // namespace dlock
