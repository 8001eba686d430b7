#include <doctest/doctest.h>

#include <algorithm>

#include "cli/databases.hpp"
#include "support/fake_server.hpp"
#include "support/one_of_tries.hpp"
#include "support/resp.hpp"

// dlock believes a single server, but accepts only well-formed answers to its own requests.

namespace dlock::test {
namespace {

const std::string its_time = "1700000000000000";

bool asks_to(const std::string& operation, const std::vector<std::string>& words) {
  return words[0] == "EVALSHA" && std::find(words.begin(), words.end(), operation) != words.end();
}

std::string refusal() {
  const std::string holder =
      "h 0 " + its_time + " " + its_time + " 5 60000 60000 1 other web1 42 deploy backup.sh -";
  return request({"refused", "held", "1", "0", "1", "5000", "1", its_time, "0", holder});
}

std::string as_subscribed(const std::string& channel) {
  return "*3\r\n$9\r\nsubscribe\r\n$" + std::to_string(channel.size()) + "\r\n" + channel +
         "\r\n:1\r\n";
}

/// Lets a waiter join its queue, at once hands the lock over for the duration `lease`, and answers
/// no renewal.
FakeServer::Script handing_over(const std::string& lease) {
  return [lease, in_multi = false,
          channel = std::string()](const std::vector<std::string>& words) mutable {
    if (words[0] == "EXEC") {
      in_multi = false;
      return say("*2\r\n" + as_subscribed(channel) + refusal() +
                 request({"message", channel, "grant " + its_time + " " + lease + " 7 "}));
    }
    if (in_multi && words[0] == "SUBSCRIBE") channel = words[1];
    if (in_multi) return say("+QUEUED\r\n");
    if (words[0] == "MULTI") in_multi = true;
    if (asks_to("acquire", words)) return say(refusal());
    if (asks_to("release", words)) return say(request({"released", "0"}));
    return asks_to("renew", words) ? silence() : say("+OK\r\n");
  };
}

}  // namespace

TEST_CASE("bad server: a grant with a fence that no server has is none") {
  for (const std::string fence : {"0", "-1", "9007199254740992", "9223372036854775808"}) {
    CAPTURE(fence);
    FakeServer server([fence](const std::vector<std::string>& words) {
      if (asks_to("acquire", words)) return say(request({"granted", fence, "0"}));
      return say(words[0] == "EVALSHA" ? request({"released", "0"}) : "+OK\r\n");
    });
    const Result ran = dlock_at(server.url(), {"run", "-n", "-k", "a", "--", "echo", "ran"});
    CAPTURE(ran.err);
    CHECK(ran.exit_code == 69);
    CHECK(ran.out == "");
    const Result acquired = dlock_at(server.url(), {"acquire", "-n", "-t", "5s", "a"});
    CHECK(acquired.exit_code == 69);
    CHECK(acquired.out == "");
  }
}

TEST_CASE("bad server: a renewal is for what was asked for, however long it is said to be") {
  FakeServer server([renewals = 0](const std::vector<std::string>& words) mutable {
    if (asks_to("acquire", words)) return say(request({"granted", "7", "0"}));
    if (asks_to("release", words)) return say(request({"released", "0"}));
    if (!asks_to("renew", words)) return say("+OK\r\n");
    return ++renewals > 1 ? silence() : say(request({"renewed", "86400000", "7", "1", "0"}));
  });
  Result result;
  // On a busy machine, the first answer may be too late for such a short lease, but not in every
  // try.
  in_one_of(5, [&] {
    result = dlock_at(server.url(), {"run", "-t", "900ms", "-k", "a", "--", "sleep", "15"});
    return result.exit_code != 69;
  });
  CAPTURE(result.err);
  CHECK(result.exit_code == 79);
}

TEST_CASE("bad server: a hand-over for longer than was asked for starts nothing unconfirmed") {
  const std::vector<std::string> run{"run", "-w", "2", "-t", "12s", "-k", "a", "--", "echo", "ran"};
  Result ran;
  // On a busy machine, the wait may end first, but not in every try.
  in_one_of(3, [&] {
    FakeServer as_asked(handing_over("12000"));
    ran = dlock_at(as_asked.url(), run);
    return ran.out == "ran\n";
  });
  CAPTURE(ran.err);
  CHECK(ran.out == "ran\n");
  FakeServer too_long(handing_over("86400000"));
  const Result refused = dlock_at(too_long.url(), run);
  CAPTURE(refused.err);
  CHECK(refused.exit_code != 0);
  CHECK(refused.out == "");
}

TEST_CASE("bad server: a grant in place of a release says nothing of the hold") {
  FakeServer server([](const std::vector<std::string>& words) {
    return say(words[0] == "EVALSHA" ? request({"granted", "7", "0"}) : "+OK\r\n");
  });
  const Result result = dlock_at(server.url(), {"release", "a", "--token", "t"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 69);
}

TEST_CASE("bad server: a register that names a smaller fence than it was given recorded none") {
  FakeServer server([](const std::vector<std::string>& words) {
    return say(words[0].starts_with("EVAL") ? request({"3"}) : "+OK\r\n");
  });
  const Result result =
      dlock_at(server.url(), {"guard", "--state-key", "a", "--fence", "7", "--", "echo", "ran"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 69);
  CHECK(result.out == "");
}

}  // namespace dlock::test
