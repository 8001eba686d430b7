#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "sql/database.hpp"

namespace dlock {
namespace {

bool is_postgres(const DatabaseFacts& facts) { return facts.kind == DatabaseKind::postgres; }

/// Whether a setting was reported, and is not off.
bool is_set(const DatabaseFacts& facts, const std::string& name) {
  const std::string value = facts.settings.text(name).value_or("");
  return !value.empty() && value != "off" && value != "OFF" && value != "0";
}

long long number_of(const DatabaseFacts& facts, const std::string& name) {
  return facts.settings.number(name).value_or(0);
}

Findings check_primary(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const bool postgres = is_postgres(facts);
  const Finding reach = check_reach(
      facts, facts.denied ? "check user, password, TLS and its rules of access"
                          : advice_on(facts.unreachable.cause,
                                      "is it running, and do address, database and firewall fit?"));
  const std::string version = told.shown("version");
  const bool mariadb = version.find("MariaDB") != std::string::npos;
  const std::string engine = sentence("{} {}",
                                      postgres  ? "PostgreSQL"
                                      : mariadb ? "MariaDB"
                                                : "MySQL",
                                      version.substr(0, version.find_first_of("- ")));
  const ShortVersion least = postgres  ? ShortVersion{11, 0}
                             : mariadb ? ShortVersion{10, 4}
                                       : ShortVersion{8, 0};
  return first_rows({
      {"reach", true, reach, reach.level == Level::error},
      {"engine", version.empty(), not_told("version")},
      {"engine", is_older(version, least),
       warn(sentence("{} is older than {}{}, the least dlock is written for", engine, least.first,
                     least.second == 0 ? "" : "." + std::to_string(least.second)),
            "upgrade it")},
      {"engine", true, good(engine)},
      // After an error here the remaining checks would describe the wrong server.
      {"role", told.text("standby") == "t",
       bad("a standby: it takes no locks", "name the primary in --server"), ends},
      {"role", !takes_locks(facts),
       bad("read-only: it takes no locks", "name the primary in --server, or let it be written"),
       ends},
      {"role", true, good("primary")},
  });
}

Findings check_access(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const std::string tls = told.shown("Ssl_version").empty()
                              ? told.shown("tls")
                              : told.shown("Ssl_version") + ", " + told.shown("Ssl_cipher");
  const std::string key = told.text("name_key").value_or("PRI");
  const std::string named = told.shown("table_name");
  Findings all = first_rows({
      {"pooler", facts.pooled,
       warn("a pooler stands between: waiters poll, and a hand-over may take half a second",
            "name the server itself in --server, and waiters are notified")},
      {"pooler", true, good("none")},
      {"tls", facts.pooled, not_told("a pooler stands between")},
      {"tls", !tls.empty(), good(tls)},
      {"tls", facts.socket, good("none, on a Unix socket")},
      {"tls", true,
       check_plain_text(facts.here, is_postgres(facts) ? "sslmode=verify-full in --server"
                                                       : "ssl-mode=VERIFY_IDENTITY in --server")},
      {"user", true, good(told.shown("user"))},
      {"table", !told.shown("missing_rights").empty(),
       bad("the user lacks " + told.shown("missing_rights"),
           "dlock doctor --acl prints the rights")},
      {"table", key != "PRI" && key != "UNI",
       bad("it may hold a name twice, and then two clients hold one lock",
           "ALTER TABLE dlock ADD PRIMARY KEY (name)")},
      {"table", !told.shown("tables").empty(),
       bad(told.shown("tables") + ": clients of different ones do not exclude each other",
           "drop all but one, or name its schema with ?dlock-schema=NAME")},
      {"table", !told.shown("table").empty(), good("there" + (named.empty() ? "" : ": " + named))},
      {"table", told.text("may_create") == "f",
       bad("none, and the user may not create it", "dlock doctor --schema, as one that may")},
      {"table", true, good("none before: the first lock creates it")},
  });
  append(all,
         first_rows({{"lock", facts.trial && all.back().level == Level::ok,
                      check_lock(facts.trial, "see the findings above, and the server's log")}}));
  return all;
}

constexpr const char* two_run =
    "a failover may lose the last commits, and then two run until the first holder's next renewal";

/// Whether PostgreSQL keeps locks through crashes and failovers.
Findings check_postgres(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const std::string commit = told.shown("synchronous_commit");
  const auto standbys = told.number("standbys");
  const auto synchronous = told.number("synchronous_standbys");
  const bool waits = is_set(facts, "synchronous_standby_names");
  const std::string there = counted(standbys.value_or(0), "standby connection");
  return first_rows({
      {"persistence", !told.text("fsync"), not_told("fsync")},
      {"persistence", told.text("table") == "u",
       warn("the table dlock is UNLOGGED: a crash empties it, and held locks are free",
            "ALTER TABLE dlock SET LOGGED")},
      {"persistence", !is_set(facts, "fsync"),
       warn("fsync off: a crash of its host damages the database or forgets locks", "fsync = on")},
      {"persistence", !is_set(facts, "full_page_writes"),
       warn("full_page_writes off: a crash of its host may damage the database, and with it locks",
            "full_page_writes = on, unless the file system writes whole pages")},
      {"persistence", true,
       good("fsync on, full_page_writes on, and dlock commits with synchronous_commit on" +
            (commit == "on" ? "" : " (the default there: " + commit + ")"))},
      {"replication", !standbys, not_told("pg_stat_replication")},
      {"replication", waits && !synchronous,
       good(there + ", synchronous_standby_names " + told.shown("synchronous_standby_names"))},
      {"replication", waits && synchronous == 0,
       bad("synchronous_standby_names is set, but no such standby is connected: commits wait, and "
           "no lock can be taken",
           "bring the standby back, or change synchronous_standby_names")},
      {"replication", waits,
       good(sentence("{}, {} synchronous: a failover to one keeps all locks", there,
                     synchronous.value_or(0)))},
      {"replication", standbys == 0, good("no standby connected")},
      {"replication", true,
       warn(there + ", asynchronous: " + two_run,
            "synchronous_standby_names, and fencing tokens: dlock guard")},
  });
}

bool is_group(const DatabaseFacts& facts) { return is_set(facts, "group_replication_group_name"); }

bool has_several_primaries(const DatabaseFacts& facts) {
  return is_set(facts, "wsrep_on") ||
         (is_group(facts) && !is_set(facts, "group_replication_single_primary_mode"));
}

/// The same for MySQL and MariaDB.
Findings check_mysql(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const std::string flush = told.shown("innodb_flush_log_at_trx_commit");
  const std::string engine = told.text("table") ? told.shown("table") : "InnoDB";
  const std::string doublewrite = told.shown("innodb_doublewrite");
  const bool logs = is_set(facts, "log_bin");
  const std::string nodes =
      is_set(facts, "wsrep_on")
          ? "Galera, " + counted(told.number("wsrep_cluster_size").value_or(1), "node")
          : "Group Replication with several primaries";
  // The setting has an older and a newer name. Replication falls back to asynchronous when no
  // replica confirms in time.
  bool semi_sync = false, confirms = false;
  for (const char* name : {"master", "source"}) {
    const std::string status = sentence("Rpl_semi_sync_{}_status", name);
    if (!is_set(facts, sentence("rpl_semi_sync_{}_enabled", name))) continue;
    semi_sync = true;
    confirms = confirms || !told.text(status) || is_set(facts, status);
  }
  const auto replicas = told.number("Slaves_connected");
  const std::string there = replicas ? counted(*replicas, "replica") : "Group Replication";
  return first_rows({
      {"persistence", engine != "InnoDB",
       bad("the table dlock is of the engine " + engine + ": a crash may forget or damage it",
           "ALTER TABLE dlock ENGINE=InnoDB")},
      {"persistence", flush.empty(), not_told("innodb_flush_log_at_trx_commit")},
      {"persistence", flush != "1",
       warn(sentence("innodb_flush_log_at_trx_commit {}: a crash of {} may forget the last "
                     "second's locks",
                     flush, flush == "2" ? "its host" : "the server"),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in its my.cnf")},
      {"persistence", told.text("innodb_flush_method") == "nosync",
       warn("innodb_flush_method nosync: a crash of its host forgets locks",
            "another innodb_flush_method in its my.cnf")},
      // DETECT_ONLY finds a torn page but cannot restore it.
      {"persistence",
       !doublewrite.empty() &&
           (!is_set(facts, "innodb_doublewrite") || doublewrite == "DETECT_ONLY"),
       warn("innodb_doublewrite " + doublewrite + ": a crash of its host may damage the table",
            "innodb_doublewrite = ON in its my.cnf")},
      {"persistence", logs && told.text("sync_binlog") != "1",
       warn(sentence("sync_binlog {}: after a crash of its host its replicas may lack locks, or "
                     "have more",
                     told.shown("sync_binlog")),
            "SET GLOBAL sync_binlog = 1, and in its my.cnf")},
      {"persistence", true,
       good(sentence("innodb_flush_log_at_trx_commit 1: locks outlive a crash{}",
                     logs ? ", sync_binlog 1" : ""))},
      {"replication", has_several_primaries(facts),
       warn(nodes + ": each node times leases by its own clock",
            "let all clients name one node in --server")},
      {"replication", semi_sync && !confirms,
       warn(sentence("semi-synchronous, but fallen back to asynchronous, as no replica confirms in "
                     "time: {}",
                     two_run),
            "see that a semi-synchronous replica is connected and keeps up, and fencing tokens: "
            "dlock guard")},
      {"replication", semi_sync,
       good("semi-synchronous: a failover keeps locks, unless the replicas were late before")},
      {"replication", !replicas && !is_group(facts), not_told("Slaves_connected")},
      {"replication", replicas == 0, good("no replica connected")},
      {"replication", true,
       warn(there + ", asynchronous: " + two_run,
            "semi-synchronous replication, and fencing tokens: dlock guard")},
  });
}

Findings check_keeping(const DatabaseFacts& facts) {
  return is_postgres(facts) ? check_postgres(facts) : check_mysql(facts);
}

Findings check_limits(const DatabaseFacts& facts) {
  /// The longest sleep of a waiter between two requests.
  constexpr std::chrono::seconds longest_idle{26};
  /// A lower limit ends statements that merely waited for a moment.
  constexpr long long least_statement_ms = 1000;
  const ServerInfo& told = facts.settings;
  const bool postgres = is_postgres(facts);
  // PostgreSQL counts in ms, MySQL in seconds.
  const std::string idle_name = postgres ? "idle_session_timeout" : "wait_timeout";
  const milliseconds idle(number_of(facts, idle_name) * (postgres ? 1 : 1000));
  const auto statement = number_of(facts, "statement_timeout");
  const std::string most_time = told.shown("max_statement_time");
  const std::string transactions = is_set(facts, "idle_in_transaction_session_timeout")
                                       ? "; dlock leaves no transaction open"
                                       : "";
  const auto used = told.number(postgres ? "connections" : "Threads_connected");
  const auto most = told.number("max_connections");
  const auto of_user = number_of(facts, "user_connections"), limit = number_of(facts, "user_limit");
  const std::string in_use =
      sentence("{} of {} in use{}", used.value_or(0), most.value_or(0),
               limit > 0 ? sentence(", by this user {} of {}", of_user, limit) : "");
  return first_rows({
      // Through a pooler, idle sessions are the pooler's.
      {"timeouts", idle.count() > 0 && idle < longest_idle && !facts.pooled,
       warn(sentence("{} {}: waiters are disconnected, and come back again and again", idle_name,
                     human_duration(idle)),
            idle_name + " of 30 seconds or more for dlock's user")},
      {"timeouts", postgres && statement > 0 && statement < least_statement_ms,
       warn(sentence("statement_timeout {} ms: a read that has to wait is ended, and with it a "
                     "renewal",
                     statement),
            "ALTER ROLE ... SET statement_timeout = '5s' for dlock's user")},
      {"timeouts", most_time.find_first_not_of("0.") != std::string::npos,
       warn(sentence("max_statement_time {} s: it ends the waiting by GET_LOCK, and waiters poll",
                     most_time),
            "max_statement_time = 0 for dlock's user")},
      {"timeouts", idle.count() == 0, good("idle sessions are not ended" + transactions)},
      {"timeouts", true,
       good(sentence("sessions idle for {} are ended; dlock reconnects{}", human_duration(idle),
                     transactions))},
      {"connections", !used || !most, not_told("max_connections")},
      {"connections",
       5 * used.value_or(0) > 4 * most.value_or(0) || (limit > 0 && 5 * of_user > 4 * limit),
       warn(
           in_use + ": waiters keep none and poll, and a renewal needs one",
           limit > 0 ? "raise max_connections or the limit of the user" : "raise max_connections")},
      {"connections", true, good(in_use)},
      {"clock", true, check_clock(facts.clock)},
      {"label", true, good(label_of(facts))},
  });
}

/// Removes the record: that of a free key stays for a week, because of its fence.
void sweep(const SqlTarget& target, const std::string& record) {
  const auto place = target.mysql ? open_mysql(*target.mysql, target.shown, target.password)
                                  : open_postgres(target.url, target.shown, target.password);
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

bool takes_locks(const DatabaseFacts& facts) {
  return facts.settings.text("standby") != "t" && !is_set(facts, "read_only") &&
         !is_set(facts, "innodb_read_only");
}

std::string label_of(const DatabaseFacts& facts) {
  const Finding persistence = check_keeping(facts).front();
  if (!persistence.told) return "best effort: whether it keeps what it commits is not known";
  if (persistence.level != Level::ok) return "best effort: a crash may forget the newest locks";
  if (has_several_primaries(facts)) return "best effort: several nodes that can be written";
  if (number_of(facts, "synchronous_standbys") > 0) {
    return "safe through restarts, and through failovers to a synchronous standby";
  }
  return "safe through restarts, best effort through failovers";
}

Findings check_database(const DatabaseFacts& facts) {
  Findings all = check_primary(facts);
  if (all.back().level == Level::error) return all;
  append(all, check_access(facts));
  append(all, check_keeping(facts));
  append(all, check_limits(facts));
  return all;
}

Diagnosis diagnose(const SqlTarget& target, const DoctorOptions& options, const OpenStore& open) {
  DatabaseFacts facts = examine_database(target);
  facts.options = options;
  if (facts.unreachable.empty() && facts.broke_off.empty() && takes_locks(facts)) {
    const LockKey scratch = scratch_key();
    facts.trial = try_lock(open, scratch, target.shown);
    sweep(target, options.prefix + "k:" + scratch.text);
  }
  return {target.shown, label_of(facts), check_database(facts)};
}

}  // namespace dlock
