#include "doctor/database_checks.hpp"

#include <algorithm>
#include <string_view>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "doctor/examine_database.hpp"
#include "doctor/examine_redis.hpp"
#include "doctor/finding.hpp"
#include "doctor/redis_checks.hpp"
#include "sql/open_database.hpp"

#ifdef DLOCK_WITH_MYSQL
#include "sql/mysql_backend.hpp"
#endif

#ifdef DLOCK_WITH_POSTGRESQL
#include "sql/postgres_backend.hpp"
#endif

namespace dlock {
namespace {

/// The longest sleep of a waiter between two requests.
constexpr std::chrono::seconds longest_idle{26};
/// A lower limit ends statements that merely waited for a moment.
constexpr milliseconds least_statement_time{1000};

bool in_postgres(const DatabaseFacts& facts) { return facts.kind == DatabaseKind::postgres; }

std::string told(const DatabaseFacts& facts, const char* name) {
  return facts.settings.text(name).value_or("");
}

Finding judge_database_engine(const DatabaseFacts& facts) {
  const std::string version = told(facts, "version");
  if (version.empty()) return not_told("version");
  const bool mariadb = version.find("MariaDB") != std::string::npos;
  const std::string kind = in_postgres(facts) ? "PostgreSQL" : mariadb ? "MariaDB" : "MySQL";
  const std::string text = kind + " " + escaped(version.substr(0, version.find_first_of("- ")));
  const ShortVersion least = in_postgres(facts) ? ShortVersion{11, 0}
                             : mariadb          ? ShortVersion{10, 4}
                                                : ShortVersion{8, 0};
  if (is_older(version, least)) {
    return warn(text + " is older than " + std::to_string(least.first) +
                    (least.second == 0 ? "" : "." + std::to_string(least.second)) +
                    ", the least dlock is written for",
                "upgrade it");
  }
  return good(text);
}

Finding judge_database_role(const DatabaseFacts& facts) {
  if (told(facts, "standby") == "t") {
    return bad("a standby: it takes no locks", "name the primary in --server");
  }
  if (!takes_locks(facts)) {
    return bad("read-only: it takes no locks",
               "name the primary in --server, or let it be written");
  }
  return good("primary");
}

Finding judge_path(const DatabaseFacts& facts) {
  if (!facts.pooled) return good("none");
  return warn("a pooler stands between: waiters poll, and a hand-over may take half a second",
              "name the server itself in --server, and waiters are notified");
}

Finding judge_database_tls(const DatabaseFacts& facts) {
  if (facts.pooled) return not_told("a pooler stands between");
  std::string tls = told(facts, "tls");
  if (!in_postgres(facts) && !told(facts, "Ssl_version").empty()) {
    tls = told(facts, "Ssl_version") + ", " + told(facts, "Ssl_cipher");
  }
  if (!tls.empty()) return good(escaped(tls));
  if (facts.socket) return good("none, on a Unix socket");
  return check_plain_text(facts.here, in_postgres(facts) ? "sslmode=verify-full in --server"
                                                         : "ssl-mode=VERIFY_IDENTITY in --server");
}

Finding judge_table(const DatabaseFacts& facts) {
  const std::string missing = told(facts, "missing_rights");
  if (!missing.empty()) {
    return bad("the user lacks " + escaped(missing), "dlock doctor --acl prints the rights");
  }
  const auto key = facts.settings.text("name_key");
  if (key && *key != "PRI" && *key != "UNI") {
    return bad("it may hold a name twice, and then two clients hold one lock",
               "ALTER TABLE dlock ADD PRIMARY KEY (name)");
  }
  if (!told(facts, "tables").empty()) {
    return bad(escaped(told(facts, "tables")) +
                   ": clients of different ones do not exclude "
                   "each other",
               "drop all but one, or name its schema with ?dlock-schema=NAME");
  }
  const std::string named = told(facts, "table_name");
  if (!told(facts, "table").empty()) {
    return good("there" + (named.empty() ? "" : ": " + escaped(named)));
  }
  if (told(facts, "may_create") == "f") {
    return bad("none, and the user may not create it", "dlock doctor --schema, as one that may");
  }
  return good("none before: the first lock creates it");
}

/// Settings are in ms in PostgreSQL, in seconds in MySQL.
Finding judge_timeouts(const DatabaseFacts& facts) {
  const bool postgres = in_postgres(facts);
  const char* const idle_name = postgres ? "idle_session_timeout" : "wait_timeout";
  const milliseconds unit(postgres ? 1 : 1000);
  const auto idle = facts.settings.number(idle_name).value_or(0);
  // Through a pooler, idle sessions are the pooler's.
  if (idle > 0 && idle * unit < longest_idle && !facts.pooled) {
    return warn(std::string(idle_name) + " " + human_duration(idle * unit) +
                    ": waiters are disconnected, and come back again and again",
                std::string(idle_name) + " of 30 seconds or more for dlock's user");
  }
  const auto statement = facts.settings.number("statement_timeout").value_or(0);
  if (postgres && statement > 0 && milliseconds(statement) < least_statement_time) {
    return warn("statement_timeout " + std::to_string(statement) +
                    " ms: a read that has to wait is ended, and with it a renewal",
                "ALTER ROLE ... SET statement_timeout = '5s' for dlock's user");
  }
  if (told(facts, "max_statement_time").find_first_not_of("0.") != std::string::npos) {
    return warn("max_statement_time " + escaped(told(facts, "max_statement_time")) +
                    " s: it ends the waiting by GET_LOCK, and waiters poll",
                "max_statement_time = 0 for dlock's user");
  }
  const std::string transactions =
      facts.settings.number("idle_in_transaction_session_timeout").value_or(0) == 0
          ? ""
          : "; dlock leaves no transaction open";
  if (idle == 0) return good("idle sessions are not ended" + transactions);
  return good("sessions idle for " + human_duration(idle * unit) + " are ended; dlock reconnects" +
              transactions);
}

Finding judge_connections(const DatabaseFacts& facts) {
  const auto used = facts.settings.number(in_postgres(facts) ? "connections" : "Threads_connected");
  const auto most = facts.settings.number("max_connections");
  if (!used || !most) return not_told("max_connections");
  const auto of_user = facts.settings.number("user_connections").value_or(0);
  const auto most_of_user = facts.settings.number("user_limit").value_or(0);
  const bool is_limited = most_of_user > 0;
  const std::string text = std::to_string(*used) + " of " + std::to_string(*most) + " in use" +
                           (is_limited ? ", by this user " + std::to_string(of_user) + " of " +
                                             std::to_string(most_of_user)
                                       : "");
  if (5 * *used > 4 * *most || (is_limited && 5 * of_user > 4 * most_of_user)) {
    return warn(
        text + ": waiters keep none and poll, and a renewal needs one",
        is_limited ? "raise max_connections or the limit of the user" : "raise max_connections");
  }
  return good(text);
}

}  // namespace

bool takes_locks(const DatabaseFacts& facts) {
  const auto on = [&](const char* name) {
    const std::string value = told(facts, name);
    return value == "on" || value == "ON" || value == "1";
  };
  return told(facts, "standby") != "t" && !on("read_only") && !on("innodb_read_only");
}

namespace {

Finding judge_database_reach(const DatabaseFacts& facts) {
  return check_reach(facts, facts.exam.ttl, "check user, password, TLS and its rules of access",
                     "is it running, and do address, database and firewall fit?");
}

constexpr Check<DatabaseFacts> database_checks[] = {
    {"reach", judge_database_reach, nullptr, true},
    {"engine", judge_database_engine},
    // After an error here the remaining checks would describe the wrong server.
    {"role", judge_database_role, nullptr, true},
    {"pooler", judge_path},
    {"tls", judge_database_tls},
    {"user", [](const DatabaseFacts& facts) { return good(escaped(told(facts, "user"))); }},
    {"table", judge_table},
    {"lock",
     [](const DatabaseFacts& facts) {
       return check_lock(facts.trial, "see the findings above, and the server's log");
     },
     [](const DatabaseFacts& facts) {
       return facts.tried && judge_table(facts).level == Level::ok;
     }},
    {"persistence", judge_durability},
    {"replication", judge_standbys},
    {"timeouts", judge_timeouts},
    {"connections", judge_connections},
    {"clock", [](const DatabaseFacts& facts) { return check_clock(facts.clock); }},
    {"label", [](const DatabaseFacts& facts) { return good(database_label(facts)); }}};

}  // namespace

Findings judge_database(const DatabaseFacts& facts) { return run_checks(facts, database_checks); }

namespace {

[[maybe_unused]] constexpr std::string_view grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ";

DatabaseFacts examine(const DatabaseAddress& database) {
  if (database.mysql) {
#ifdef DLOCK_WITH_MYSQL
    return examine_mysql(*database.mysql, database.shown, database.password);
#endif
  } else {
#ifdef DLOCK_WITH_POSTGRESQL
    return examine_postgres(database.url, database.shown, database.password);
#endif
  }
  throw_usage("this dlock was built without " +
              std::string(database.mysql ? "MySQL and MariaDB" : "PostgreSQL"));
}

/// Removes the record: that of a free key stays for a week, because of its fence.
void sweep(const DatabaseAddress& database, const std::string& record) {
  const auto place = database.mysql
                         ? open_mysql(*database.mysql, database.shown, database.password)
                         : open_postgres(database.url, database.shown, database.password);
  constexpr microseconds long_ago{1};
  const CallOptions soon{later(BootClock::now(), milliseconds(2000)), -1};
  try {
    const Snapshot seen = place->read(record, nullptr, soon);
    if (seen.version == 0) return;
    place->write(record, seen, {seen.text, long_ago}, soon);
    place->sweep(record, "", soon);
  } catch (const Error&) {
    // doctor reports the first failure; the record expires by itself.
  }
}

}  // namespace

std::string postgres_rights([[maybe_unused]] const std::string& url) {
#ifdef DLOCK_WITH_POSTGRESQL
  std::string rest = url;
  std::string schema = take_schema(rest);
  for (auto at = schema.find('"'); at != std::string::npos; at = schema.find('"', at + 2)) {
    schema.insert(at, 1, '"');
  }
  const std::string to_user = " TO \"USER\";\n";
  const std::string in = schema.empty() ? "public" : '"' + schema + '"';
  return postgres_schema(in + ".dlock") + ";\n" +
         (schema.empty() ? "" : "GRANT USAGE ON SCHEMA " + in + to_user) + std::string(grant) + in +
         ".dlock" + to_user;
#else
  return {};
#endif
}

std::string mysql_rights() {
#ifdef DLOCK_WITH_MYSQL
  return std::string(mysql_schema()) + ";\n" + std::string(grant) + "dlock TO 'USER'@'%';\n";
#else
  return {};
#endif
}

Diagnosis diagnose_database(const DatabaseAddress& database, const DoctorOptions& exam,
                            const std::function<StorePtr()>& open) {
  DatabaseFacts facts = examine(database);
  facts.exam = exam;
  const bool reached = facts.unreachable.empty() && facts.broke_off.empty();
  if (reached && takes_locks(facts)) {
    facts.tried = true;
    const LockKey scratch = scratch_key();
    facts.trial = try_lock(open, scratch, database.shown);
    sweep(database, exam.prefix + "k:" + scratch.text);
  }
  return {database.shown, database_label(facts), judge_database(facts)};
}

}  // namespace dlock
