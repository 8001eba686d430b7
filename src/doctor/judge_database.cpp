#include "doctor/judge_database.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/advice.hpp"
#include "doctor/judge.hpp"
#include "doctor/words.hpp"

namespace dlock {
namespace {

/// So long a waiter may sleep between its requests.
constexpr std::chrono::seconds longest_idle{26};
/// A statement that is ended before has had no time.
constexpr milliseconds least_statement_time{1000};

bool in_postgres(const DatabaseFacts& facts) { return facts.kind == DatabaseKind::postgres; }

std::string told(const DatabaseFacts& facts, const char* name) {
  return facts.settings.text(name).value_or("");
}

Finding judge_database_reach(const DatabaseFacts& facts, milliseconds ttl) {
  const std::string name = "reach";
  if (!facts.unreachable.empty()) {
    return bad(name, facts.unreachable.text,
               facts.denied
                   ? "check user, password, TLS and its rules of access"
                   : advice_on(facts.unreachable.cause,
                               "is it running, and do address, database and firewall fit?"));
  }
  const std::string text = "connected in " + span_text(facts.connected_in) + ", answers in " +
                           span_text(facts.round_trip);
  if (!facts.broke_off.empty()) {
    return bad(name, text + ", then broke off: " + facts.broke_off, "see the server's log");
  }
  // A renewal must find room for some attempts within ttl/3.
  if (facts.round_trip > ttl / 30) {
    return warn(name, text + ": slow for a ttl of " + human_duration(ttl),
                "a nearer server, or a longer -t");
  }
  return good(name, text);
}

Finding judge_database_engine(const DatabaseFacts& facts) {
  const std::string name = "engine";
  const std::string version = told(facts, "version");
  if (version.empty()) return not_told(name, "version");
  const bool mariadb = version.find("MariaDB") != std::string::npos;
  const std::string kind = in_postgres(facts) ? "PostgreSQL" : mariadb ? "MariaDB" : "MySQL";
  const std::string text = kind + " " + escaped(version.substr(0, version.find_first_of("- ")));
  const ShortVersion least = in_postgres(facts) ? ShortVersion{11, 0}
                             : mariadb          ? ShortVersion{10, 4}
                                                : ShortVersion{8, 0};
  if (is_older(version, least)) {
    return warn(name,
                text + " is older than " + std::to_string(least.first) +
                    (least.second == 0 ? "" : "." + std::to_string(least.second)) +
                    ", the least dlock is written for",
                "upgrade it");
  }
  return good(name, text);
}

Finding judge_database_role(const DatabaseFacts& facts) {
  const std::string name = "role";
  if (told(facts, "standby") == "t") {
    return bad(name, "a standby: it takes no locks", "name the primary in --server");
  }
  if (!takes_locks(facts)) {
    return bad(name, "read-only: it takes no locks",
               "name the primary in --server, or let it be written");
  }
  return good(name, "primary");
}

Finding judge_path(const DatabaseFacts& facts) {
  const std::string name = "pooler";
  if (!facts.pooled) return good(name, "none");
  return warn(name, "a pooler stands between: waiters poll, and a hand-over may take half a second",
              "name the server itself in --server, and waiters are notified");
}

Finding judge_database_tls(const DatabaseFacts& facts) {
  const std::string name = "tls";
  if (facts.pooled) return not_told(name, "a pooler stands between");
  std::string tls = told(facts, "tls");
  if (!in_postgres(facts) && !told(facts, "Ssl_version").empty()) {
    tls = told(facts, "Ssl_version") + ", " + told(facts, "Ssl_cipher");
  }
  if (!tls.empty()) return good(name, escaped(tls));
  if (facts.socket) return good(name, "none, on a Unix socket");
  if (facts.here) return good(name, "none, on this host");
  return warn(name, "none: anyone on the network path can change locks",
              in_postgres(facts) ? "sslmode=verify-full in --server"
                                 : "ssl-mode=VERIFY_IDENTITY in --server");
}

Finding judge_table(const DatabaseFacts& facts) {
  const std::string name = "table";
  const std::string missing = told(facts, "missing_rights");
  if (!missing.empty()) {
    return bad(name, "the user lacks " + escaped(missing), "dlock doctor --acl prints the rights");
  }
  const auto key = facts.settings.text("name_key");
  if (key && *key != "PRI" && *key != "UNI") {
    return bad(name, "it may hold a name twice, and then two clients hold one lock",
               "ALTER TABLE dlock ADD PRIMARY KEY (name)");
  }
  if (!told(facts, "tables").empty()) {
    return bad(name,
               escaped(told(facts, "tables")) +
                   ": clients of different ones do not exclude "
                   "each other",
               "drop all but one, or name its schema with ?dlock-schema=NAME");
  }
  const std::string named = told(facts, "table_name");
  if (!told(facts, "table").empty()) {
    return good(name, "there" + (named.empty() ? "" : ": " + escaped(named)));
  }
  if (told(facts, "may_create") == "f") {
    return bad(name, "none, and the user may not create it",
               "dlock doctor --schema, as one that may");
  }
  return good(name, "none before: the first lock creates it");
}

Finding judge_database_lock(const DatabaseFacts& facts) {
  const std::string name = "lock";
  if (!facts.trial.trouble.empty()) {
    return bad(name, "cannot be held: " + facts.trial.trouble.text,
               "see the findings above, and the server's log");
  }
  return good(name, "acquired, handed over in " + span_text(facts.trial.handed_over_in) +
                        ", renewed, released");
}

/// In the unit of the setting: ms in PostgreSQL, seconds in MySQL.
Finding judge_timeouts(const DatabaseFacts& facts) {
  const std::string name = "timeouts";
  const bool postgres = in_postgres(facts);
  const char* const idle_name = postgres ? "idle_session_timeout" : "wait_timeout";
  const milliseconds unit(postgres ? 1 : 1000);
  const auto idle = facts.settings.number(idle_name).value_or(0);
  // Behind a pooler they are the pooler's.
  if (idle > 0 && idle * unit < longest_idle && !facts.pooled) {
    return warn(name,
                std::string(idle_name) + " " + human_duration(idle * unit) +
                    ": waiters are disconnected, and come back again and again",
                std::string(idle_name) + " of 30 seconds or more for dlock's user");
  }
  const auto statement = facts.settings.number("statement_timeout").value_or(0);
  if (postgres && statement > 0 && milliseconds(statement) < least_statement_time) {
    return warn(name,
                "statement_timeout " + std::to_string(statement) +
                    " ms: a read that has to wait is ended, and with it a renewal",
                "ALTER ROLE ... SET statement_timeout = '5s' for dlock's user");
  }
  if (told(facts, "max_statement_time").find_first_not_of("0.") != std::string::npos) {
    return warn(name,
                "max_statement_time " + escaped(told(facts, "max_statement_time")) +
                    " s: it ends the waiting by GET_LOCK, and waiters poll",
                "max_statement_time = 0 for dlock's user");
  }
  const std::string transactions =
      facts.settings.number("idle_in_transaction_session_timeout").value_or(0) == 0
          ? ""
          : "; dlock leaves no transaction open";
  if (idle == 0) return good(name, "idle sessions are not ended" + transactions);
  return good(name, "sessions idle for " + human_duration(idle * unit) +
                        " are ended; dlock reconnects" + transactions);
}

Finding judge_connections(const DatabaseFacts& facts) {
  const std::string name = "connections";
  const auto used = facts.settings.number(in_postgres(facts) ? "connections" : "Threads_connected");
  const auto most = facts.settings.number("max_connections");
  if (!used || !most) return not_told(name, "max_connections");
  const auto of_user = facts.settings.number("user_connections").value_or(0);
  const auto most_of_user = facts.settings.number("user_limit").value_or(0);
  const bool is_limited = most_of_user > 0;
  const std::string text = std::to_string(*used) + " of " + std::to_string(*most) + " in use" +
                           (is_limited ? ", by this user " + std::to_string(of_user) + " of " +
                                             std::to_string(most_of_user)
                                       : "");
  if (5 * *used > 4 * *most || (is_limited && 5 * of_user > 4 * most_of_user)) {
    return warn(
        name, text + ": waiters keep none and poll, and a renewal needs one",
        is_limited ? "raise max_connections or the limit of the user" : "raise max_connections");
  }
  return good(name, text);
}

}  // namespace

bool takes_locks(const DatabaseFacts& facts) {
  const auto on = [&](const char* name) {
    const std::string value = told(facts, name);
    return value == "on" || value == "ON" || value == "1";
  };
  return told(facts, "standby") != "t" && !on("read_only") && !on("innodb_read_only");
}

Findings judge_database(const DatabaseFacts& facts, milliseconds ttl) {
  Findings findings{judge_database_reach(facts, ttl)};
  if (!facts.unreachable.empty() || !facts.broke_off.empty()) return findings;
  findings.push_back(judge_database_engine(facts));
  findings.push_back(judge_database_role(facts));
  // All the rest would be about the wrong server.
  if (findings.back().level == Level::error) return findings;
  findings.push_back(judge_path(facts));
  findings.push_back(judge_database_tls(facts));
  findings.push_back(good("user", escaped(told(facts, "user"))));
  findings.push_back(judge_table(facts));
  if (facts.tried && findings.back().level == Level::ok) {
    findings.push_back(judge_database_lock(facts));
  }
  findings.push_back(judge_durability(facts));
  findings.push_back(judge_standbys(facts));
  findings.push_back(judge_timeouts(facts));
  findings.push_back(judge_connections(facts));
  findings.push_back(judge_clock(facts.clock));
  findings.push_back(good("label", database_label(facts)));
  return findings;
}

}  // namespace dlock
