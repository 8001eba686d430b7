// False answers of etcd that would take much memory: to receive, to parse, or to print.

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cas/open_record.hpp"
#include "cli/etcd.hpp"
#include "cli/place.hpp"
#include "etcd/base64.hpp"
#include "support/fake_server.hpp"
#include "support/limited_data.hpp"
#include "support/one_of_tries.hpp"
#include "support/stretched.hpp"

namespace dlock::test {
namespace {

constexpr std::size_t mebibyte = 1u << 20;
/// The most text that dlock accepts in an answer.
constexpr std::size_t most_text = 2 * mebibyte - 1024;
/// The maximum size of a record, and of a single value.
constexpr std::size_t most_record = 220'000;

std::string repeated_to(std::size_t bytes, const std::string& part) {
  std::string all;
  while (all.size() + part.size() <= bytes) all += part;
  return all;
}

Step with_body(const std::string& body) {
  return say("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
             body);
}

/// A complete answer to any request; `rest` has further fields.
Step answer_with(const std::string& rest) {
  return with_body(
      R"({"header":{"revision":"9"},"ID":"7","TTL":"31","grantedTTL":"31","version":"3.5.16",)"
      R"("leader":"1",)" +
      rest + "}");
}

/// A list of as many parts as fit; its exact size does not matter to the test.
Step list_of(const std::string& part, std::size_t many) {
  std::string all = part;
  for (std::size_t i = 1; i < many && all.size() < most_text; ++i) all += "," + part;
  return answer_with(R"("kvs":[)" + all + "]");
}

std::string key_with(const std::string& key, const std::string& value,
                     const std::string& lease = "0") {
  return R"({"key":")" + to_base64(key) + R"(","value":")" + to_base64(value) +
         R"(","mod_revision":"8","lease":")" + lease + "\"}";
}

/// A record of the key "a" that consists of repeated lines, with a live client "t" for them.
Step record_of(const std::string& line) {
  const std::string text = "ends 9000000000000000\ndlock-record 1\nkey a\nfence 5\nasked 5\n" +
                           repeated_to(most_record, line) + "end\n";
  return answer_with(R"("kvs":[)" + key_with("dlock:k:a", text) + "," +
                     key_with("dlock:k:a\n" + life_name(Token{"t"}), "", "7") + "]");
}

struct LargeAnswer {
  const char* name;
  Step step;
};

std::vector<LargeAnswer> answers_without_end() {
  const std::string ok = "HTTP/1.1 200 OK\r\n", wait = "HTTP/1.1 100 Continue\r\n\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n\r\n";
  return {
      {"a body without end", flood(ok + "\r\n")},
      {"a chunk without end", flood(ok + chunked + "7fffffff\r\n")},
      {"many chunks", flood(ok + chunked + repeated_to(3 * mebibyte, "1\r\n[\r\n"))},
      {"a header without end", flood(ok + "X: ")},
      {"many headers", say(ok + repeated_to(mebibyte, "a:\r\n"))},
      {"many trailers", say(ok + chunked + "1\r\nx\r\n0\r\n" + repeated_to(mebibyte, "a:\r\n"))},
      {"many answers before the answer", say(repeated_to(mebibyte, wait))},
      {"an error without end", flood("HTTP/1.1 500 No\r\n\r\n")},
  };
}

std::vector<LargeAnswer> answers_of_large_words() {
  const auto in_quotes = [](const std::string& text) { return R"("message":")" + text + '"'; };
  const std::string word = repeated_to(290'000, "x"), escape = repeated_to(290'000, "\\u001b");
  std::string words;
  for (int i = 0; i < 6; ++i) words += "," + key_with("dlock:k:" + std::to_string(i), word);
  return {
      {"a large string", answer_with(in_quotes(repeated_to(most_text, "x")))},
      {"a large string that does not end", with_body(R"({"a":")" + repeated_to(most_text, "x"))},
      {"a large string of control characters", with_body("{\"a\":\"" + repeated_to(290'000, "\n"))},
      {"a string that a control character ends", with_body("{\"a\":\"" + word + "\n")},
      {"large strings", answer_with(R"("kvs":[{})" + words + "]")},
      {"a large message", answer_with(R"("code":5,)" + in_quotes(escape))},
      {"a large field of each name",
       answer_with(R"("version":")" + escape + R"(","leader":")" + escape + R"(","token":")" +
                   escape + R"(","cancel_reason":")" + escape + "\"")},
      {"a large number", answer_with("\"count\":" + repeated_to(290'000, "7"))},
      {"much white space", with_body(repeated_to(most_text, "\n"))},
      {"white space between", answer_with(repeated_to(most_text, " \t\r\n") + R"("a":1)")},
      {"large names", answer_with("\"" + word + "\":1,\"" + word + "x\":1,\"b\":1")},
  };
}

std::vector<LargeAnswer> answers_of_many_parts() {
  std::string members = R"("a":1)";
  for (int i = 0; members.size() < most_text; ++i) members += ",\"" + std::to_string(i) + "\":0";
  std::vector<LargeAnswer> all{
      {"deep arrays", answer_with("\"a\":" + repeated_to(most_text, "["))},
      {"deep objects", answer_with("\"a\":" + repeated_to(most_text, R"({"a":)"))},
      {"many members", answer_with(members)},
      {"many alarms",
       answer_with(R"("alarms":[{"alarm":"a"})" +
                   repeated_to(300'000, R"(,{"alarm":"NOSPACE of a member"})") + "]")},
      {"many lives", list_of(key_with("dlock:k:a\n0123456789abcdef", "", "7"), 5'000)},
      {"a record of many holds",
       record_of("hold t o h 5000000000000 5 1000000000 0 0 9 1 h 1 u c l 0 -\n")},
      {"a record of many waiters",
       record_of("wait t o 1 5000000000000 0 1000000000 0 9 h 1 u c l 0 -\n")},
      {"a page that goes on",
       answer_with(R"("more":true,"kvs":[)" + key_with("dlock:k:a", "x") + "]")},
  };
  for (const char* part : {"7", "[]", "{}", R"({"key":"YQ=="})", R"({"value":"%"})"}) {
    all.push_back({part, list_of(part, SIZE_MAX)});
    // Numbers of parts around which dlock's limit might be.
    for (const std::size_t many : {10'000u, 20'000u, 40'000u}) {
      all.push_back({part, list_of(part, many)});
    }
  }
  return all;
}

std::vector<std::vector<std::string>> commands_at(const std::string& mark) {
  return {
      {"run", "-n", "-t", "1200ms", "-k", "a", "--", "touch", mark},
      {"run", "-w", "1", "-t", "1200ms", "-k", "a", "--", "touch", mark},
      {"acquire", "-n", "-t", "1200ms", "a"},
      {"release", "a", "--token", "t"},
      {"renew", "a", "-t", "1200ms", "--token", "t"},
      {"inspect", "a"},
      {"inspect", "a", "--json"},
      {"inspect"},
      {"latch", "wait", "-k", "a", "-w", "1"},
      {"doctor"},
  };
}

/// The fault of dlock in this run; empty if none.
std::string fault_of(const std::vector<std::string>& words, const LargeAnswer& given,
                     const FakeServer& server, const std::string& mark) {
  static const std::set<int> documented{0, 1, 2, 65, 69, 75, 79};
  constexpr milliseconds within{15'000};
  ProcessOptions options = at("etcd://127.0.0.1:" + std::to_string(server.address().port));
  options.before_exec = limit_data;
  const Result result = dlock(words, options);
  std::string fault;
  if (result.signal != 0 || documented.count(result.exit_code) == 0) fault = "its exit";
  if (result.err.find("ut of memory") != std::string::npos) fault = "it took too much memory";
  if (result.duration > stretched(within)) fault = "it took too long";
  const bool claims =
      words[0] == "acquire" ? result.exit_code == 0 : access(mark.c_str(), F_OK) == 0;
  if (claims) fault = "it claimed what it was not granted";
  if (fault.empty()) return fault;
  for (const std::string& word : words) fault += " " + word;
  return fault + ", " + given.name + ": exit " + std::to_string(result.exit_code) + ", signal " +
         std::to_string(result.signal) + "\n" + result.err.substr(0, 2'000);
}

void check_all(const std::vector<LargeAnswer>& answers) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::string> faults(answers.size());
  std::vector<std::thread> running;
  for (int i = 0; i < 6; ++i) {
    running.emplace_back([&] {
      for (std::size_t mine = next++; mine < answers.size(); mine = next++) {
        const TempDir dir;
        const FakeServer server({answers[mine].step}, true);
        for (const auto& words : commands_at(dir / "mark")) {
          faults[mine] += fault_of(words, answers[mine], server, dir / "mark");
        }
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::string& fault : faults) CHECK_MESSAGE(fault.empty(), fault);
}

TEST_CASE("large answers: one of etcd's without end takes no more than 16 MiB") {
  check_all(answers_without_end());
}

TEST_CASE("large answers: one of etcd's with large words takes no more than 16 MiB") {
  check_all(answers_of_large_words());
}

TEST_CASE("large answers: one of etcd's with many parts takes no more than 16 MiB") {
  check_all(answers_of_many_parts());
}

TEST_CASE("large answers: keys of others with large values do not spoil the list of locks") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto put = [&](const std::string& key, std::size_t bytes) {
    etcd.ask("kv/put", {{"key", to_base64(key)}, {"value", to_base64(std::string(bytes, 'x'))}});
  };
  // All the small ones exceed one answer together; each of the two large ones does so on its own.
  for (int i = 0; i < 12; ++i) put("dlock:k:b" + std::to_string(i), 200'000);
  put("dlock:k:c", 500'000);
  put("dlock:k:z", 500'000);
  for (const char* key : {"a", "bb", "d"}) {
    REQUIRE(dlock_at(etcd.url(), {"acquire", "-t", "60s", key}).exit_code == 0);
  }
  ProcessOptions options = at(etcd.url());
  options.before_exec = limit_data;
  Result listed;
  // A busy machine may take longer for some twenty megabytes than inspect waits.
  in_one_of(10, [&] { return (listed = dlock({"inspect", "--json"}, options)).exit_code == 0; });
  CAPTURE(listed.err);
  CHECK(listed.exit_code == 0);
  for (const char* key : {"\"a\"", "\"bb\"", "\"d\""}) CHECK(holds(listed.out, key));
  const auto named = dlock({"inspect", "c"}, options);
  CHECK(named.exit_code == 69);
  CHECK(is_one_message(named.err));
  CHECK(holds(named.err, "an answer that is too large"));
}

}  // namespace
}  // namespace dlock::test
