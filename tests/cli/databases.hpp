#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/place.hpp"
#include "support/ensemble.hpp"
#include "support/files.hpp"
#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"
#include "support/skip.hpp"

// Shared helpers for tests of locks in databases.
TYPE_TO_STRING_AS("postgres", dlock::test::PostgresServer);
TYPE_TO_STRING_AS("mariadb", dlock::test::MariaDbServer);
/// A test of each kind of database; `Server` is the kind under test.
#define TEST_OF_DATABASES(name) \
  TEST_CASE_TEMPLATE(name, Server, dlock::test::PostgresServer, dlock::test::MariaDbServer)
// Shared helpers for tests of host names. The names shim (tests/shim) defines the meaning of
// `ANYTHING.N.test`.

namespace dlock::test {

inline constexpr const char* password = "s3cret-of-the-test";

template <typename Server>
std::unique_ptr<DatabaseServer> new_server() {
  return std::make_unique<Server>();
}

/// TCP logins need a password, except for the administrator.
template <>
inline std::unique_ptr<DatabaseServer> new_server<PostgresServer>() {
  return std::make_unique<PostgresServer>(
      PostgresOptions{true,
                      {},
                      "local all all trust\nhost all postgres 127.0.0.1/32 trust\n"
                      "host all all 127.0.0.1/32 scram-sha-256\n"});
}

/// One server for all tests of a process, without a table.
template <typename Server>
DatabaseServer& empty_database() {
  static const auto server = new_server<Server>();
  server->text("DROP TABLE IF EXISTS dlock");
  return *server;
}

inline ProcessOptions at(const std::string& url) { return {.env = {{"DLOCK_SERVER", url}}}; }

inline Result dlock_at(const std::string& url, const std::vector<std::string>& arguments) {
  return dlock(arguments, at(url));
}

inline Result run_at(const std::string& url) {
  return dlock_at(url, {"run", "-k", "a", "--", "true"});
}

/// False if no server answers.
inline bool is_held(const std::string& url) {
  return dlock_at(url, {"inspect", "-q", "a"}).exit_code == 0;
}

inline std::size_t waiters(const std::string& url) {
  const auto seen = dlock_at(url, {"inspect", "-k", "a", "--json"});
  const auto state = nlohmann::ordered_json::parse(seen.out, nullptr, false);
  return state.is_object() ? state["waiters"].size() : 0;
}

/// The line of `doctor` about a check, as `LEVEL TEXT -> ADVICE`.
inline std::string finding(const Result& doctor, const std::string& check) {
  const auto report = nlohmann::ordered_json::parse(doctor.out, nullptr, false);
  if (!report.is_object()) return "no report: " + doctor.out + doctor.err;
  for (const auto& each : report["checks"]) {
    if (each["check"] != check) continue;
    return each["level"].template get<std::string>() + " " +
           each["text"].template get<std::string>() + " -> " +
           each["advice"].template get<std::string>();
  }
  return "none";
}

/// Checks each command once: a lock, a latch and a guarded resource.
inline void check_all_commands_at(const std::string& url) {
  const auto code = [&](const std::vector<std::string>& words) {
    return dlock_at(url, words).exit_code;
  };
  const Result acquired = dlock_at(url, {"acquire", "-k", "a", "-t", "60s"});
  REQUIRE(acquired.exit_code == 0);
  const std::string token = acquired.out.substr(0, acquired.out.size() - 1);
  CHECK(code({"run", "-n", "-k", "a", "--", "true"}) == 75);
  CHECK(dlock_at(url, {"inspect"}).out.find("a ") != std::string::npos);
  CHECK(code({"renew", "-k", "a", "--token", token, "-t", "90s"}) == 0);
  const auto state = nlohmann::json::parse(dlock_at(url, {"inspect", "-k", "a", "--json"}).out);
  const auto left = state["holders"][0]["lease_left_ms"].get<int>();
  CHECK(left > 60'000);
  // Where the engine shows whole seconds, leases are longer by up to two.
  CHECK(left <= 92'000);
  CHECK(code({"release", "-k", "a", "--token", token}) == 0);
  CHECK(code({"renew", "-k", "a", "--token", token}) == 79);
  CHECK(run_at(url).exit_code == 0);

  CHECK(code({"latch", "open", "-k", "l", "--count", "2", "-t", "60s"}) == 0);
  Process waiting = start_dlock({"latch", "wait", "-k", "l", "-w", "60s"}, at(url));
  for (int i = 0; i < 2; ++i) CHECK(code({"latch", "arrive", "-k", "l", "--by", "x"}) == 0);
  CHECK(waiting.running());
  CHECK(code({"latch", "arrive", "-k", "l", "--by", "y"}) == 0);
  CHECK(waiting.wait(milliseconds(60'000)).exit_code == 0);

  CHECK(code({"guard", "--state-key", "r", "--fence", "7", "true"}) == 0);
  CHECK(code({"guard", "--state-key", "r", "--fence", "6", "true"}) == 79);
  CHECK(code({"guard", "--state-key", "r", "--fence", "8", "true"}) == 0);
}

inline Result doctor_at(const std::string& url) { return dlock_at(url, {"doctor", "--json"}); }

inline nlohmann::json state_at(const std::string& url, const std::string& key) {
  return nlohmann::json::parse(dlock_at(url, {"inspect", "-k", key, "--json"}).out, nullptr, false);
}

/// A run on `a` that is number `count` in the queue at `url`, and has reported its wait, when this
/// returns.
inline Process queued_at(const std::string& url, std::size_t count,
                         std::vector<std::string> words) {
  words.insert(words.begin(), {"run", "-k", "a"});
  const auto is_queued = [&](const Process& waiter) {
    return says_that_it_waits(waiter) && waiters(url) == count;
  };
  return patient_start([&] { return start_dlock(words, at(url)); }, is_queued,
                       "it did not queue up");
}

/// A run on `a` whose command has started, and which ends on request.
class CommandInside {
 public:
  explicit CommandInside(const std::string& url, const std::vector<std::string>& options = {})
      : CommandInside(at(url), options) {}
  CommandInside(const ProcessOptions& where, const std::vector<std::string>& options)
      : process(patient_start([&] { return start_dlock(arguments(options), where); },
                              [&] { return std::filesystem::exists(dir_ / "in"); },
                              "the command did not begin")) {}
  void end() { write_file(dir_ / "end", ""); }

 private:
  TempDir dir_;

  std::vector<std::string> arguments(const std::vector<std::string>& options) const {
    std::vector<std::string> all{"run", "-k", "a"};
    all.insert(all.end(), options.begin(), options.end());
    const std::string script =
        "touch '" + (dir_ / "in") + "'; until [ -e '" + (dir_ / "end") + "' ]; do sleep 0.05; done";
    all.insert(all.end(), {"--", "sh", "-c", script});
    return all;
  }

 public:
  Process process;
};

/// The environment with a resolver that knows the test names.
inline ProcessOptions at_test_names(const std::string& url) {
  ProcessOptions options = at(url);
  options.env["LD_PRELOAD"] = DLOCK_NAMES_SHIM;
  return options;
}

/// Checks that dlock gave up in time although its resolver takes 100 s.
inline void check_given_up(const Result& result) {
  CHECK(result.exit_code == 69);
  CHECK(is_one_message(result.err));
  CHECK(holds(result.err, "took too long"));
  CHECK(result.duration < milliseconds(15'000));
}

/// Checks that of several hosts an unknown one is passed over. `lock_at` acquires a lock at the
/// hosts of a server with this `port` (`:2379`).
inline void check_names_passed_over(const std::function<Result(const std::string&)>& lock_at,
                                    const std::string& port) {
  const std::string there = "db.1.test" + port;
  for (const std::string& hosts :
       {there, "gone.1.none.test" + port + "," + there, "silent.100000.test" + port + "," + there,
        there + ",gone.1.none.test" + port}) {
    CAPTURE(hosts);
    CHECK(once_served([&] { return lock_at(hosts); }).exit_code == 0);
  }
  const auto unknown = lock_at("gone.1.none.test" + port);
  CHECK(unknown.exit_code == 69);
  CHECK(is_one_message(unknown.err));
  CHECK(holds(unknown.err, "cannot look up gone.1.none.test"));
}

/// Checks that a job keeps its lock while the leader is killed and another elected, and that the
/// next one then gets it.
inline void check_lock_outlives_leader(Ensemble& servers, const std::string& url) {
  CommandInside holder(url, {"-t", "30s"});
  Process waiter = queued_at(url, 1, {"-t", "30s", "--", "echo", "in"});
  const auto leader = servers.leader();
  servers.kill_hard(leader);
  REQUIRE(eventually([&] { return servers.leader() != leader; }));
  CHECK(dlock_at(url, {"run", "-n", "-k", "a", "--", "true"}).exit_code == 75);
  CHECK(holder.process.running());
  holder.end();
  CHECK(waiter.wait(milliseconds(90'000)).out == "in\n");
  CHECK(holder.process.wait().exit_code == 0);
}

/// Whether a holder with only one of three servers left kept trying for a while before it stopped
/// its command; up to a third of its lease may have passed before that.
inline bool holder_tries_alone(Ensemble& servers, const std::string& url) {
  CommandInside holder(url, {"-t", "6s"});
  const auto before = BootClock::now();
  servers.kill_hard(0);
  servers.stop(1);
  const auto ended = holder.process.wait(milliseconds(60'000));
  CHECK(ended.exit_code == 79);
  const bool tried = BootClock::now() - before > std::chrono::seconds(2);
  check_message(run_at(url), 69);
  return tried;
}

}  // namespace dlock::test
