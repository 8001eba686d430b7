#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/dlock_binary.hpp"
#include "support/installed.hpp"
#include "support/mariadb_server.hpp"
#include "support/postgres_server.hpp"

// Shared helpers for tests of locks in databases.

TYPE_TO_STRING_AS("postgres", dlock::test::PostgresServer);
TYPE_TO_STRING_AS("mariadb", dlock::test::MariaDbServer);

/// A test of each kind of database; `Server` is the kind under test.
#define TEST_OF_DATABASES(name) \
  TEST_CASE_TEMPLATE(name, Server, dlock::test::PostgresServer, dlock::test::MariaDbServer)

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
  CHECK(left <= 90'000);
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

}  // namespace dlock::test
