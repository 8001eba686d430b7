#include <algorithm>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

[[maybe_unused]] SqlResult answer_to(SqlConnection& connection, const std::string& statement) {
  auto results = connection.query(statement, short_call());
  if (results.back().failed()) throw_unavailable(escaped(results.back().message));
  return std::move(results.back());
}

[[maybe_unused]] std::optional<WallTime> clock_of(SqlConnection& connection,
                                                  const SqlDialect& dialect) {
  return WallTime(microseconds(
      number_in(answer_to(connection, "SELECT " + std::string(dialect.clock)).first())));
}

#ifdef DLOCK_WITH_POSTGRESQL
struct NamedExpression {
  const char* name;
  const char* expression;  ///< NULL if unknown or forbidden
};

/// Values of pg_settings are in the unit of the setting, and NULL in versions without it.
constexpr NamedExpression asked_of_postgres[] = {
    {"version", "current_setting('server_version')"},
    {"user", "current_user"},
    {"pid", "pg_backend_pid()"},
    {"standby", "pg_is_in_recovery()"},
    {"socket", "inet_client_addr() IS NULL"},
    {"same_host", "inet_client_addr() = inet_server_addr()"},
    {"tls", "(SELECT version || ', ' || cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid())"},
    {"table", "(SELECT relpersistence FROM ours ORDER BY chosen DESC LIMIT 1)"},
    {"table_name",
     "(SELECT name || ', owner ' || pg_get_userbyid(relowner) || ', ' || CASE relpersistence WHEN "
     "'u' THEN 'unlogged' ELSE 'logged' END FROM ours ORDER BY chosen DESC LIMIT 1)"},
    {"fsync", "current_setting('fsync')"},
    {"synchronous_standby_names", "current_setting('synchronous_standby_names')"},
    {"standbys", "(SELECT count(*) FROM pg_stat_replication)"},
    {"synchronous_standbys",
     "(SELECT CASE WHEN count(*) = count(sync_state) THEN count(*) FILTER (WHERE sync_state IN "
     "('sync', 'quorum')) END FROM pg_stat_replication)"},
    {"connections", "(SELECT sum(numbackends) FROM pg_stat_database)"},
    {"max_connections",
     "current_setting('max_connections')::int - "
     "current_setting('superuser_reserved_connections')::int"},
    {"user_connections",
     "(SELECT count(*) FROM pg_stat_get_activity(NULL) WHERE usesysid = "
     "(SELECT oid FROM pg_roles WHERE rolname = session_user))"},
    {"user_limit", "(SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user)"},
    {"idle_session_timeout",
     "(SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout')"}};

void examine_postgres(const SqlTarget& target, DatabaseFacts& facts) {
  const auto connection = postgres_connection(target.url, target.shown, target.password);
  const auto clock = [&] { return clock_of(*connection, postgres_dialect); };
  examine(facts, target.shown, clock, [&] {
    std::string statement = with_tables(schema_in(target.url)) + "SELECT 1";
    for (const auto& each : asked_of_postgres) statement += ", " + std::string(each.expression);
    const SqlResult row = answer_to(*connection, statement);
    std::size_t column = 1;
    for (const auto& each : asked_of_postgres) {
      const auto value = row.first(column++);
      if (value) facts.settings.values.emplace(each.name, *value);
    }
    facts.pooled = facts.settings.text("pid") != std::to_string(connection->login_id());
    facts.socket = facts.settings.text("socket") == "t";
    facts.here = facts.socket || facts.settings.text("same_host") == "t";
  });
}
#endif

#ifdef DLOCK_WITH_MYSQL
/// Each statement returns names and values. Servers omit variables that they do not have.
constexpr const char* asked_of_mysql[] = {
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', "
    "'innodb_read_only', 'innodb_flush_log_at_trx_commit', "
    "'innodb_flush_method', 'innodb_doublewrite', 'log_bin', 'sync_binlog', 'wsrep_on', "
    "'wait_timeout', "
    "'max_connections', 'group_replication_group_name', "
    "'group_replication_single_primary_mode', "
    "'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')",
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected', "
    "'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')",
    "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')",
    "SELECT 'user', CURRENT_USER() UNION ALL SELECT 'session', CONNECTION_ID() UNION ALL "
    "SELECT 'user_limit', @@max_user_connections UNION ALL SELECT 'user_connections', COUNT(*) "
    "FROM information_schema.PROCESSLIST WHERE USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1) "
    "UNION ALL "
    "SELECT 'table', engine FROM information_schema.tables WHERE table_schema = DATABASE() AND "
    "table_name = 'dlock' UNION ALL SELECT 'name_key', column_key FROM "
    "information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'dlock' AND "
    "column_name = 'name'"};

void examine_mysql(const SqlTarget& target, DatabaseFacts& facts) {
  MysqlAddress address = *target.mysql;
  if (target.password) address.password = target.password;
  facts.mysql = true;
  facts.socket = !address.socket_path.empty() || address.host.empty();
  facts.here = facts.socket || is_this_host(address.host);
  const auto connection = mysql_connection(std::move(address), target.shown);
  const auto clock = [&] { return clock_of(*connection, mysql_dialect); };
  examine(facts, target.shown, clock, [&] {
    for (const char* statement : asked_of_mysql) {
      for (const auto& row : answer_to(*connection, statement).rows) {
        facts.settings.values[row[0].value_or("")] = row[1].value_or("");
      }
    }
    facts.pooled = facts.settings.text("session") != std::to_string(connection->login_id());
  });
}
#endif

/// Examines a database, without a lock.
DatabaseFacts examine_database(const SqlTarget& target) {
  DatabaseFacts facts;
#ifdef DLOCK_WITH_MYSQL
  if (target.mysql) examine_mysql(target, facts);
#endif
#ifdef DLOCK_WITH_POSTGRESQL
  if (!target.mysql) examine_postgres(target, facts);
#endif
  return facts;
}

/// Whether a setting was reported, and is not off.
bool is_set(const DatabaseFacts& facts, const std::string& name) {
  const std::string value = facts.settings.text(name).value_or("");
  return !value.empty() && value != "off" && value != "OFF" && value != "0";
}

long long number_of(const DatabaseFacts& facts, const std::string& name) {
  return facts.settings.number(name).value_or(0);
}

/// The row for a setting whose value is not as it should be.
Check setting_row(const DatabaseFacts& facts, const char* check, const char* name, bool holds,
                  const char* effect, const char* fix) {
  return {check, holds, warn(sentence("{} {}: {}", name, facts.settings.shown(name), effect), fix)};
}

Findings check_primary(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const Finding reach =
      check_reach(facts, advice_on(facts.unreachable.cause,
                                   "is it running, and do address, database and firewall fit?"));
  const std::string version = told.shown("version");
  const bool mariadb = version.find("MariaDB") != std::string::npos;
  const char* const engine = !facts.mysql ? "PostgreSQL" : mariadb ? "MariaDB" : "MySQL";
  const ShortVersion least = !facts.mysql ? ShortVersion{11, 0}
                             : mariadb    ? ShortVersion{10, 4}
                                          : ShortVersion{8, 0};
  return first_rows({
      {"reach", true, reach, reach.level == Level::error},
      {"engine", version.empty(), not_told("version")},
      {"engine", true,
       check_versions(engine, {version.substr(0, version.find_first_of("- "))}, least)},
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
  return first_rows({
      {"pooler", facts.pooled,
       warn("a pooler stands between: waiters poll, and a hand-over may take half a second",
            "name the server itself in --server, and waiters are notified")},
      {"pooler", true, good("none")},
      {"tls", facts.pooled, not_told("a pooler stands between")},
      {"tls", !tls.empty(), good(tls)},
      {"tls", facts.socket, good("none, on a Unix socket")},
      {"tls", true,
       check_plain_text(facts.here, facts.mysql ? "ssl-mode=VERIFY_IDENTITY in --server"
                                                : "sslmode=verify-full in --server")},
      {"user", true, good(told.shown("user"))},
      {"table", key != "PRI" && key != "UNI",
       bad("it may hold a name twice, and then two clients hold one lock",
           "ALTER TABLE dlock ADD PRIMARY KEY (name)")},
      {"table", !told.shown("table").empty(), good("there" + (named.empty() ? "" : ": " + named))},
      {"table", true, good("none before: the first lock creates it")},
      {"lock", facts.trial.has_value(), check_lock(facts.trial)},
  });
}

constexpr const char* two_run =
    "a failover may lose the last commits, and then two run until the first holder's next renewal";

/// Whether PostgreSQL keeps locks through crashes and failovers.
Findings check_postgres(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const auto standbys = told.number("standbys");
  const auto synchronous = told.number("synchronous_standbys");
  const bool waits = is_set(facts, "synchronous_standby_names");
  const std::string there = counted(standbys.value_or(0), "standby connection");
  return first_rows({
      {"persistence", !told.text("fsync"), not_told("fsync")},
      {"persistence", told.text("table") == "u",
       warn("the table dlock is UNLOGGED: a crash empties it, and held locks are free",
            "ALTER TABLE dlock SET LOGGED")},
      setting_row(facts, "persistence", "fsync", !is_set(facts, "fsync"),
                  "a crash of its host damages the database or forgets locks", "fsync = on"),
      {"persistence", true, good("fsync on, and dlock commits with synchronous_commit on")},
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

/// Whether MySQL or MariaDB keeps locks through crashes and failovers.
Findings check_mysql(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const std::string flush = told.shown("innodb_flush_log_at_trx_commit");
  const bool logs = is_set(facts, "log_bin");
  // The settings have an older and a newer name.
  const auto semi_sync = [&](const char* form) {
    return is_set(facts, sentence(form, "master")) || is_set(facts, sentence(form, "source"));
  };
  const auto replicas = told.number("Slaves_connected");
  const std::string there = replicas ? counted(*replicas, "replica") : "Group Replication";
  return first_rows({
      {"persistence", flush.empty(), not_told("innodb_flush_log_at_trx_commit")},
      setting_row(facts, "persistence", "innodb_flush_log_at_trx_commit", flush != "1",
                  "a crash may forget the last second's locks",
                  "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in its my.cnf"),
      setting_row(facts, "persistence", "innodb_flush_method",
                  told.text("innodb_flush_method") == "nosync", "a crash of its host forgets locks",
                  "another innodb_flush_method in its my.cnf"),
      setting_row(
          facts, "persistence", "innodb_doublewrite", told.text("innodb_doublewrite") == "OFF",
          "a crash of its host may damage the table", "innodb_doublewrite = ON in its my.cnf"),
      setting_row(facts, "persistence", "sync_binlog", logs && told.text("sync_binlog") != "1",
                  "after a crash of its host its replicas may lack locks, or have more",
                  "SET GLOBAL sync_binlog = 1, and in its my.cnf"),
      {"persistence", true,
       good(sentence("innodb_flush_log_at_trx_commit 1: locks outlive a crash{}",
                     logs ? ", sync_binlog 1" : ""))},
      {"replication", has_several_primaries(facts),
       warn("several nodes can be written, and each times leases by its own clock",
            "let all clients name one node in --server")},
      // Replication falls back to asynchronous when no replica confirms in time.
      {"replication",
       semi_sync("rpl_semi_sync_{}_enabled") && !semi_sync("Rpl_semi_sync_{}_status"),
       warn(sentence("semi-synchronous, but fallen back to asynchronous: {}", two_run),
            "see that a semi-synchronous replica is connected and keeps up, and fencing tokens: "
            "dlock guard")},
      {"replication", semi_sync("rpl_semi_sync_{}_enabled"),
       good("semi-synchronous: a failover keeps locks, unless the replicas were late before")},
      {"replication", !replicas && !is_group(facts), not_told("Slaves_connected")},
      {"replication", replicas == 0, good("no replica connected")},
      {"replication", true,
       warn(there + ", asynchronous: " + two_run,
            "semi-synchronous replication, and fencing tokens: dlock guard")},
  });
}

Findings check_keeping(const DatabaseFacts& facts) {
  return facts.mysql ? check_mysql(facts) : check_postgres(facts);
}

Findings check_limits(const DatabaseFacts& facts) {
  /// The longest sleep of a waiter between two requests.
  constexpr std::chrono::seconds longest_idle{26};
  const ServerInfo& told = facts.settings;
  const bool postgres = !facts.mysql;
  // PostgreSQL counts in ms, MySQL in seconds.
  const char* const idle_name = postgres ? "idle_session_timeout" : "wait_timeout";
  const milliseconds idle(number_of(facts, idle_name) * (postgres ? 1 : 1000));
  const auto used = told.number(postgres ? "connections" : "Threads_connected");
  const auto most = told.number("max_connections");
  const auto of_user = number_of(facts, "user_connections"), limit = number_of(facts, "user_limit");
  const std::string in_use =
      sentence("{} of {} in use{}", used.value_or(0), most.value_or(0),
               limit > 0 ? sentence(", by this user {} of {}", of_user, limit) : "");
  return first_rows({
      // Behind a pooler, the limit concerns the pooler's sessions, not those of dlock.
      setting_row(facts, "timeouts", idle_name,
                  idle.count() > 0 && idle < longest_idle && !facts.pooled,
                  "waiters are disconnected, and come back again and again",
                  "30 seconds or more for dlock's user"),
      {"timeouts", true,
       good(idle.count() == 0 ? "idle sessions are not ended"
                              : sentence("sessions idle for {} are ended; dlock reconnects",
                                         human_duration(idle)))},
      {"connections", !used || !most, not_told("max_connections")},
      {"connections",
       5 * used.value_or(0) > 4 * most.value_or(0) || (limit > 0 && 5 * of_user > 4 * limit),
       warn(in_use + ": waiters keep none and poll, and a renewal needs one",
            "raise max_connections, or the limit of the user")},
      {"connections", true, good(in_use)},
      {"clock", true, check_clock(facts.clock)},
      {"label", true, good(label_of(facts))},
  });
}

/// Removes the scratch key's record, which would stay for a week, because it keeps the key's fence.
void sweep(const SqlTarget& target, const std::string& record) {
  const auto place = target.mysql ? open_mysql(*target.mysql, target.shown, target.password)
                                  : open_postgres(target.url, target.shown, target.password);
  constexpr microseconds long_ago{1};
  try {
    const Snapshot seen = place->read(record, nullptr, short_call());
    if (seen.version == 0) return;
    place->write(record, seen, {seen.text, long_ago}, short_call());
    place->sweep(record, "", short_call());
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
  if (facts.unreachable.empty() && takes_locks(facts)) {
    const LockKey scratch = scratch_key();
    facts.trial = try_lock(open, scratch, target.shown);
    sweep(target, options.prefix + "k:" + scratch.text);
  }
  return {target.shown, label_of(facts), check_database(facts)};
}

}  // namespace dlock
