#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "support/dlock_binary.hpp"
#include "support/fake_server.hpp"
#include "support/files.hpp"
#include "support/redis_server.hpp"
#include "support/resp.hpp"

namespace dlock::test {
namespace {

/// Far more than any of the commands needs on a busy machine.
constexpr milliseconds longest_run{20'000};

/// Of the false replies each point gets one of so many, and its neighbours the others.
constexpr std::size_t stride = 6;

/// As much as dlock may take for its own data, whatever a server sends.
void limit_data() {
  const rlimit most{16UL << 20, 16UL << 20};
  setrlimit(RLIMIT_DATA, &most);
}

/// Stands before a real server and passes on what either says, but for one reply.
class LyingRelay {
 public:
  /// In place of reply `at`, counted from 1 over all connections, the client gets `hostile`.
  LyingRelay(const Address& server, std::size_t at, Step hostile)
      : server_(connect_to(server)),
        at_(at),
        hostile_(std::move(hostile)),
        front_([this](const std::vector<std::string>& words) { return answer(words); }) {}

  std::string url() const { return front_.url(); }
  std::size_t replies() const { return replies_; }
  /// Whether the server has granted a lock, and the client was told.
  bool told_of_grant() const { return told_of_grant_; }

 private:
  Step answer(const std::vector<std::string>& words) {
    send_all(server_.get(), request(words));
    std::string reply;
    while (!message_size(reply)) reply += receive_some(server_.get());
    if (++replies_ == at_) return hostile_;
    if (reply.find("granted") != std::string::npos) told_of_grant_ = true;
    return say(std::move(reply));
  }

  Fd server_;
  std::size_t at_;
  Step hostile_;
  std::atomic<std::size_t> replies_ = 0;
  std::atomic<bool> told_of_grant_ = false;
  FakeServer front_;
};

std::string nested() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "*1\r\n";
  return text;
}

const std::vector<Step>& hostile_replies() {
  static const std::vector<Step> all{
      say("+OK\r\n"),
      say(":1\r\n"),
      say(":99999999999999999999\r\n"),
      say("$-1\r\n"),
      say("$-5\r\n"),
      say("*-1\r\n"),
      say("*0\r\n"),
      say("*1\r\n*-1\r\n"),
      say("*3\r\n:1\r\n:2\r\n:3\r\n"),
      say("+QUEUED\r\n"),
      say("-ERR \x1b[2J\x1b]0;owned\x07 \x9b"
          "31m and more\r\n"),
      say("-MOVED 99999 127.0.0.1:1\r\n"),
      say("-MOVED 1 :0\r\n"),
      say("-ASK 1 127.0.0.1:1\r\n"),
      say("-NOSCRIPT No matching script\r\n"),
      say("-LOADING Redis is loading\r\n"),
      say("-READONLY You can't write\r\n"),
      say(request({"granted"})),
      say(request({"granted", "-1", "-1", "-1"})),
      say(request({"granted", "abc", "\x1b[31m", ""})),
      say(request({"held", "\x1b[2J", "\n", "9999999999999999999999"})),
      say(request({"message", "dlock:{a}:no", "grant 1 2 3 4"})),
      say(std::string("+with\0nul\r\n", 11)),
      say_and_close("rubbish without an end"),
      say_and_close("*3\r\n$7\r\ngran"),
      hang_up(),
      flood("+"),
      flood("$1000000000\r\n"),
      flood("*2147483647\r\n$1\r\n"),
      flood(nested()),
  };
  return all;
}

/// What `before` leaves is there before each run; TOKEN stands for the hold's.
struct CommandLiedTo {
  std::vector<std::string> words;
  bool needs_hold = false;
};

const std::vector<CommandLiedTo>& commands_lied_to() {
  static const std::vector<CommandLiedTo> all{
      {{"run", "-n", "-t", "1200ms", "-k", "a", "--", "touch", "MARK"}},
      {{"run", "-w", "1", "-t", "1200ms", "-k", "a", "-k", "b", "--", "touch", "MARK"}},
      {{"acquire", "-n", "-t", "1200ms", "a"}},
      {{"renew", "a", "-t", "1200ms", "--token", "TOKEN"}, true},
      {{"release", "a", "--token", "TOKEN"}, true},
      {{"release", "a", "--force"}, true},
      {{"inspect", "a"}, true},
      {{"inspect"}, true},
      {{"inspect", "--all-kinds"}, true},
      {{"run", "--compat", "redis-py", "-n", "-t", "1200ms", "-k", "c", "--", "touch", "MARK"}},
      {{"run", "--compat", "redisson", "-n", "-t", "1200ms", "-k", "c", "--", "touch", "MARK"}},
      {{"latch", "open", "-k", "l", "--count", "2"}},
      {{"doctor"}},
  };
  return all;
}

/// Nothing that a terminal would obey.
bool is_plain(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  });
}

struct LieOutcome {
  std::size_t replies = 0;
  bool complained = false;
};

/// One run against a relay that lies once; what is wrong is added to `faults`.
LieOutcome lie_once(const CommandLiedTo& each, std::size_t at, const Step& hostile,
                    std::mutex& mutex, std::vector<std::string>& faults) {
  static thread_local const RedisServer server;
  server.command({"FLUSHALL"});
  const TempDir dir;
  std::string token = "t";
  if (each.needs_hold) {
    ProcessOptions direct;
    direct.env["DLOCK_SERVER"] = server.url();
    token = dlock({"acquire", "-t", "30s", "a"}, direct).out;
    while (!token.empty() && token.back() == '\n') token.pop_back();
  }
  LyingRelay relay(server.address(), at, hostile);
  auto words = each.words;
  for (std::string& word : words) {
    if (word == "MARK") word = dir / "mark";
    if (word == "TOKEN") word = token;
  }
  ProcessOptions options;
  options.env["DLOCK_SERVER"] = relay.url();
  options.before_exec = limit_data;
  Result result;
  try {
    result = start_dlock(words, options).wait(longest_run);
  } catch (const Error& stuck) {
    result.err = stuck.what();
  }
  static const std::set<int> documented{0, 1, 2, 65, 69, 71, 75, 77, 79};
  std::vector<std::string> wrong;
  if (documented.count(result.exit_code) == 0) wrong.push_back("its exit");
  if (!is_plain(result.out) || !is_plain(result.err)) wrong.push_back("control characters");
  if (result.err.find("memory") != std::string::npos) wrong.push_back("it took too much memory");
  const bool ran = access((dir / "mark").c_str(), F_OK) == 0;
  const bool is_native = std::find(words.begin(), words.end(), "--compat") == words.end();
  if (ran && is_native && !relay.told_of_grant()) wrong.push_back("it ran without a grant");
  for (const std::string& what : wrong) {
    std::string text = what + ": reply " + std::to_string(at) + " was " +
                       hostile.bytes.substr(0, 30) + ", exit " + std::to_string(result.exit_code) +
                       ", signal " + std::to_string(result.signal) + ":";
    for (const std::string& word : words) text += " " + word;
    const std::scoped_lock lock(mutex);
    faults.push_back(text + "\n" + result.err);
  }
  return {relay.replies(), !result.err.empty()};
}

TEST_CASE("hostile server: one false reply at any point of any command breaks no promise") {
  std::mutex mutex;
  std::vector<std::string> faults;
  struct Lie {
    const CommandLiedTo* which;
    std::size_t at;
    const Step* hostile;
  };
  std::vector<Lie> lies;
  for (const CommandLiedTo& each : commands_lied_to()) {
    const std::size_t replies = lie_once(each, 0, silence(), mutex, faults).replies;
    CAPTURE(each.words[0]);
    CHECK(replies > 0);
    for (std::size_t at = 1; at <= replies; ++at) {
      for (std::size_t i = at % stride; i < hostile_replies().size(); i += stride) {
        lies.push_back({&each, at, &hostile_replies()[i]});
      }
    }
  }
  CHECK(faults.empty());  // nothing is wrong where nobody lies
  std::atomic<std::size_t> next = 0, complained = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t mine = next++; mine < lies.size(); mine = next++) {
        const Lie& each = lies[mine];
        complained +=
            lie_once(*each.which, each.at, *each.hostile, mutex, faults).complained ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MESSAGE(lies.size() << " lies, of which dlock named " << complained.load());
  for (const std::string& fault : faults) CHECK_MESSAGE(false, fault);
  CHECK(complained > lies.size() / 10);
}

}  // namespace
}  // namespace dlock::test
