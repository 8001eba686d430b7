#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "base/error.hpp"
#include "redis/entry_format.hpp"
#include "redis/reply.hpp"

namespace dlock {
namespace {

std::optional<Reply> read_reply(const std::string& bytes) {
  ReplyReader reader;
  reader.feed(bytes);
  return reader.next();
}

bool refused(const std::string& bytes) {
  try {
    read_reply(bytes);
    return false;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::unavailable;
  }
}

ErrorKind trouble_of(const std::string& text) {
  Reply reply;
  reply.kind = Reply::Kind::error;
  reply.text = text;
  return server_error(reply).kind();
}

}  // namespace

TEST_CASE("replies of every kind are read, in whatever pieces they come") {
  const std::string bytes = "*6\r\n+OK\r\n-ERR no\r\n:-42\r\n$3\r\na\r\n\r\n$-1\r\n*1\r\n*0\r\n";
  ReplyReader reader;
  std::optional<Reply> reply;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CHECK_FALSE(reply);
    reader.feed(bytes.substr(i, 1));
    reply = reader.next();
  }
  REQUIRE(reply);
  REQUIRE(reply->is_array(6));
  CHECK(reply->items[0].text == "OK");
  CHECK(reply->items[1].is_error("ERR"));
  CHECK(reply->items[2].integer == -42);
  CHECK(reply->items[3].text == "a\r\n");
  CHECK(reply->items[4].kind == Reply::Kind::nil);
  CHECK(reply->items[5].items.at(0).items.empty());
}

TEST_CASE("several replies that came together are read one by one") {
  ReplyReader reader;
  reader.feed("+a\r\n:1\r\n+b");
  CHECK(reader.next()->text == "a");
  CHECK(reader.next()->integer == 1);
  CHECK_FALSE(reader.next());
  reader.feed("\r\n");
  CHECK(reader.next()->text == "b");
}

TEST_CASE("what is not RESP is refused as soon as it shows") {
  for (const char* bytes : {"HTTP/1.1 400 Bad Request\r\n", "H", "\r\n", "$x\r\n", "$01\r\n",
                            "$-2\r\n", "$+5\r\n", "*-2\r\n", ":\r\n", ":1x\r\n", ":+5\r\n"}) {
    CAPTURE(bytes);
    CHECK(refused(bytes));
  }
}

TEST_CASE("an array that no server sends is refused before it is stored") {
  CHECK(refused("*1000000000\r\n"));
  CHECK(refused("*4294967297\r\n"));
  std::string nested;
  for (int depth = 0; depth < 10; ++depth) nested += "*1\r\n";
  CHECK(refused(nested));
}

TEST_CASE("every class of server error is told apart, also where Redis 6 wraps it") {
  CHECK(trouble_of("WRONGTYPE Operation against a key") == ErrorKind::wrong_data);
  CHECK(trouble_of("DLOCKDATA x") == ErrorKind::wrong_data);
  CHECK(trouble_of("NOAUTH Authentication required.") == ErrorKind::denied);
  CHECK(trouble_of("WRONGPASS invalid username-password pair") == ErrorKind::denied);
  CHECK(trouble_of("NOPERM this user has no permissions") == ErrorKind::denied);
  CHECK(trouble_of("OOM command not allowed") == ErrorKind::unavailable);
  CHECK(trouble_of("LOADING Redis is loading") == ErrorKind::unavailable);
  CHECK(trouble_of("ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation") ==
        ErrorKind::wrong_data);
  CHECK(trouble_of("ERR Error running script (call to f_1): @user_script:1: -OOM command not") ==
        ErrorKind::unavailable);
  CHECK(
      trouble_of("ERR Error running script (call to f_1): @user_script: 1: The user executing the "
                 "script can't run this command or subcommand") == ErrorKind::denied);
  CHECK(trouble_of("ERR The user executing the script can't publish to the channel mentioned in "
                   "the command script: cea6, on @user_script:1.") == ErrorKind::denied);
  CHECK(trouble_of("ERR something new") == ErrorKind::unavailable);
}

TEST_CASE("a refused password is quoted nowhere, whatever it is") {
  const auto said_to = [](const std::string& text, const std::vector<std::string>& credentials) {
    Reply reply;
    reply.kind = Reply::Kind::error;
    reply.text = text;
    return std::string(auth_error(reply, credentials).what());
  };
  const std::string wrong = "WRONGPASS invalid username-password pair or user is disabled.";
  const std::string expected = "user name or password is wrong (it said: WRONGPASS)";
  for (const char* secret : {"***", "*", "password", "wrong", "WRONGPASS", "a", " "}) {
    CAPTURE(secret);
    CHECK(said_to(wrong, {"user", secret}) == expected);
  }
  CHECK(said_to(wrong, {"user", "secret\n"}) == "the password ends with a line break: " + expected);
  CHECK(said_to("ERR no, not abc", {"abc"}) == "the server refused (it said: ERR)");
}

TEST_CASE("what the server said is shown escaped and cut") {
  Reply reply;
  reply.kind = Reply::Kind::error;
  reply.text = "ERR \x1b[31m" + std::string(5000, 'x');
  const std::string what = server_error(reply).what();
  CHECK(what.find("\\x1B[31m") != std::string::npos);
  CHECK(what.size() < 400);
}

TEST_CASE("the place in the script is told with an error of the script, and with no other") {
  const auto what = [](const std::string& text) {
    Reply reply;
    reply.kind = Reply::Kind::error;
    reply.text = text;
    return std::string(server_error(reply).what());
  };
  CHECK(what("NOREPLICAS Not enough good replicas to write. script: 2d73, on @user_script:64.") ==
        "the server has too few replicas and refuses writes (it said: NOREPLICAS Not enough good "
        "replicas to write.)");
  CHECK(what("ERR user_script:7: a nil value script: 2d73, on @user_script:7.") ==
        "the server refused (it said: ERR user_script:7: a nil value script: 2d73, on "
        "@user_script:7.)");
}

TEST_CASE("keys of one lock share a slot whatever the key's text, and no two keys share a name") {
  const KeyNames braces("dlock:", LockKey{"a}{b%"});
  CHECK(braces.holds == "dlock:{a%7D%7Bb%25}");
  CHECK(braces.queue == "dlock:{a%7D%7Bb%25}:queue");
  CHECK(KeyNames("p:", LockKey{"a%7B"}).holds != KeyNames("p:", LockKey{"a{"}).holds);
  for (const char* text : {"a", "a}{b%", "a:queue", "a:latch", "{", "with blank", "ü*?[x]"}) {
    const KeyNames names("dlock:", LockKey{text});
    CHECK(key_of("dlock:", names.holds) == LockKey{text});
    CHECK(key_of("dlock:", names.queue) == LockKey{text});
    CHECK(key_of("dlock:", names.latch) == LockKey{text});
    CHECK_FALSE(key_of("dlock:", names.waiters));
    CHECK_FALSE(key_of("dlock:", names.fence));
  }
  CHECK_FALSE(key_of("dlock:", "other:{a}"));
  CHECK(scan_pattern("a*[b]:") == "a\\*\\[b\\]:{*}*");
}

TEST_CASE("a latch is known by its first entry, and nothing else is taken for one") {
  CHECK(latch_of_entry("=4").value_or(LatchState{}).count == 4);
  for (const char* head : {"", "4", "=", "=0", "=-1", "=4x", "=x", "=4 5", "arrived"}) {
    CAPTURE(head);
    CHECK_FALSE(latch_of_entry(head));
  }
}

TEST_CASE("a stored hold is read back as it was packed, with whatever stands in its names") {
  const Claim claim{LockKey{"k"},       Owner{"a/b"},
                    Token{"a/b:1"},     Limit{3},
                    milliseconds(5000), milliseconds(0),
                    Liveness::renewal,  Who{"h o st", 42, "-", "", "100% \n sure"}};
  const std::string value = "h 0 1000000 900000 77" + packed_claim(claim);
  const StoredHold stored = parse_hold(value, 3'000'000);
  CHECK(stored.live);
  CHECK(stored.hold.owner == "a/b");
  CHECK(stored.hold.who == claim.who);
  CHECK(stored.hold.fence.value == 77);
  CHECK(stored.hold.limit == Limit{3});
  CHECK(stored.hold.lease_left == milliseconds(3000));
  CHECK(stored.hold.held == milliseconds(2100));
  CHECK_FALSE(parse_hold(value, 6'000'001).live);
  CHECK_THROWS_AS(parse_hold("somebody else's value", 1), Error);
}

}  // namespace dlock
