#include "client.hpp"

#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace dlock::test {
namespace {

std::int64_t now_ns() { return BootClock::now().time_since_epoch().count(); }

/// The time until which the lease of a request sent at `sent_ns` surely lasts: drift and rounding
/// are deducted.
std::int64_t sure_until(std::int64_t sent_ns, milliseconds ttl) {
  constexpr milliseconds rounding{20};
  return sent_ns + std::chrono::nanoseconds(ttl - ttl / 50 - rounding).count();
}

std::string in_ms(milliseconds span) { return std::to_string(span.count()) + "ms"; }

}  // namespace

std::string beats_of(const Scene& scene, const std::string& key) {
  return scene.path("beats-" + key);
}

Client::Client(const Scene& scene, std::uint64_t seed, std::string key,
               std::vector<std::string> flags)
    : scene_(scene), chance_(seed), key_(std::move(key)), flags_(std::move(flags)) {}

void Client::work_until(const std::atomic<bool>& end) {
  end_ = &end;
  try {
    while (!end) {
      if (chance_.once_in(4)) {
        acquire_and_release();
      } else {
        run();
      }
      chance_.pause_up_to(milliseconds(300));
    }
  } catch (const std::exception& error) {
    troubles_.emplace_back(error.what());
  }
}

/// The first arguments of a command that acquires the lock.
std::vector<std::string> Client::request(const std::string& command, milliseconds ttl) {
  std::vector<std::string> arguments{command, "-t", in_ms(ttl), "-k", key_};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  if (chance_.once_in(4)) {
    arguments.emplace_back("-n");
  } else if (chance_.once_in(3)) {
    arguments.insert(arguments.end(),
                     {"-w", in_ms(chance_.between(milliseconds(200), milliseconds(5000)))});
  }
  return arguments;
}

Client::Ended Client::perform(const std::vector<std::string>& arguments, int kill_once_in) {
  const bool kill = chance_.once_in(kill_once_in);
  const auto kill_at = later(BootClock::now(), chance_.between(milliseconds(0), milliseconds(800)));
  Process process = scene_.start(arguments);
  Ended ended;
  while (process.running() && !ended.killed) {
    ended.killed = *end_ || (kill && BootClock::now() >= kill_at);
    if (ended.killed) process.signal(SIGKILL);
    std::this_thread::sleep_for(milliseconds(2));
  }
  ended.result = process.wait();
  const int code = ended.result.exit_code;
  const bool as_may_be = ended.killed || code == 0 || code == 69 || code == 75 || code == 79;
  if (!as_may_be) {
    troubles_.push_back(arguments[0] + " ended with " + std::to_string(code) + ", signal " +
                        std::to_string(ended.result.signal) + ": " + ended.result.err);
  }
  ++outcomes_[arguments[0] + (ended.killed ? " killed" : " " + std::to_string(code))];
  return ended;
}

/// Works mostly for moments, now and then for longer than a lease.
void Client::run() {
  const auto ttl = chance_.between(milliseconds(1000), longest_ttl);
  const bool for_long = chance_.once_in(16);
  const auto work = for_long ? chance_.between(milliseconds(500), milliseconds(4000))
                             : chance_.between(milliseconds(2), milliseconds(40));
  auto arguments = request("run", ttl);
  // Both dlock and its watchdog would have to be late for a command to outlive its lease.
  if (for_long) arguments.emplace_back("--watchdog");
  arguments.insert(arguments.end(),
                   {"-q", "--", DLOCK_HEART, beats_of(scene_, key_),
                    scene_.path("resource-" + key_), "for=" + std::to_string(work.count())});
  if (chance_.once_in(3)) arguments.emplace_back("stubborn");
  perform(arguments, 6);
}

void Client::acquire_and_release() {
  const auto ttl = chance_.between(milliseconds(1000), longest_ttl);
  auto arguments = request("acquire", ttl);
  arguments.emplace_back("--json");
  const std::int64_t asked = now_ns();
  const Ended acquired = perform(arguments, 8);
  if (acquired.result.out.empty()) return;
  const auto said = nlohmann::json::parse(acquired.result.out);
  const std::int64_t fence = said["locks"][0]["fence"];
  const std::string token = said["token"];
  const std::int64_t first = now_ns();
  std::int64_t last = 0;
  std::int64_t sure = sure_until(asked, ttl);
  for (int renewals = chance_.up_to(2); renewals > 0; --renewals) {
    chance_.pause_up_to(ttl / 3);
    const std::int64_t began = now_ns();
    if (!perform({"renew", "-q", "-t", in_ms(ttl), "-k", key_, "--token", token}, 10).is_good()) {
      break;
    }
    last = began;
    sure = sure_until(began, ttl);
  }
  chance_.pause_up_to(milliseconds(50));
  last = std::max(last, std::min(now_ns(), sure));
  // If the lease may have ended before we looked, only the time of its grant is known: after the
  // request, and before we looked.
  held_.push_back(last > first ? Held{fence, first, last, false, "acquire"}
                               : Held{fence, asked, first, true, "acquire"});
  if (!chance_.once_in(8)) perform({"release", "-q", "-k", key_, "--token", token}, 10);
}

}  // namespace dlock::test
