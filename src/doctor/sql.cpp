#include <algorithm>
#include <span>

#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

// Each statement returns names and values; of several values of a name, the last one counts. A fact
// that both kinds of databases have is asked of PostgreSQL under the name that MySQL gives it.

constexpr const char* asked_of_postgres[] = {
    "SELECT name, setting FROM pg_settings",
    "VALUES ('version', current_setting('server_version')), ('user', current_user), "
    "('session', pg_backend_pid()::text), ('read_only', pg_is_in_recovery()::text), "
    // Within one host both ends have the same address, and on a Unix socket none.
    "('here', (inet_client_addr() IS NOT DISTINCT FROM inet_server_addr())::text)",
    "SELECT 'Ssl_version', version FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
    // The table in the schema that the URL names is the last one.
    "SELECT 'table', name FROM ours ORDER BY chosen",
    "SELECT 'relpersistence', relpersistence FROM ours ORDER BY chosen",
    "SELECT 'Threads_connected', sum(numbackends) FROM pg_stat_database",
    "SELECT 'Slaves_connected', count(*) FROM pg_stat_replication",
    // For a role that may not see sync_state it is NULL: then each standby may be synchronous.
    "SELECT 'sync', count(*) FROM pg_stat_replication WHERE sync_state IS DISTINCT FROM 'async'"};

constexpr const char* asked_of_mysql[] = {
    // Not by SELECT @@NAME, which fails for a setting that only some of the servers have.
    "SHOW GLOBAL VARIABLES", "SHOW STATUS",
    "SELECT 'user', CURRENT_USER() UNION ALL SELECT 'session', CONNECTION_ID()",
    "SELECT 'table', table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND "
    "table_name = 'dlock'",
    "SELECT 'name_key', column_key FROM information_schema.columns WHERE table_schema = DATABASE() "
    "AND table_name = 'dlock' AND column_name = 'name'"};

/// Throws also if the database refuses the statement.
SqlResult answer_to(SqlConnection& connection, const std::string& statement) {
  auto results = connection.query(statement, short_call());
  if (results.back().failed()) throw_unavailable(escaped(results.back().message));
  return std::move(results.back());
}

/// Whether a setting was reported, and is not off.
bool is_set(const DatabaseFacts& facts, const std::string& name) {
  constexpr std::string_view off[] = {"", "0", "off", "OFF", "false"};
  return std::find(std::begin(off), std::end(off), facts.settings.shown(name)) == std::end(off);
}

bool takes_no_locks(const DatabaseFacts& facts) {
  return is_set(facts, "read_only") || is_set(facts, "innodb_read_only");
}

DatabaseFacts examine_database(const SqlTarget& target, const DoctorOptions& options,
                               const OpenStore& open) {
  DatabaseFacts facts;
  facts.options = options;
  facts.mysql = target.mysql.has_value();
  const SqlDialect& dialect = facts.mysql ? mysql_dialect : postgres_dialect;
  std::span<const char* const> statements = asked_of_postgres;
  std::unique_ptr<SqlConnection> connection;
  std::string tables;
#ifdef DLOCK_WITH_MYSQL
  if (target.mysql) {
    MysqlAddress address = *target.mysql;
    if (target.password) address.password = target.password;
    facts.here = address.host.empty() || is_this_host(address.host);
    connection = mysql_connection(std::move(address), target.shown);
    statements = asked_of_mysql;
  }
#endif
#ifdef DLOCK_WITH_POSTGRESQL
  if (!target.mysql) {
    connection = postgres_connection(target.url, target.shown, target.password);
    tables = with_tables(schema_in(target.url));
  }
#endif
  const std::string clock = "SELECT " + std::string(dialect.clock);
  const auto clock_now = [&]() -> std::optional<WallTime> {
    return WallTime(microseconds(number_in(answer_to(*connection, clock).first())));
  };
  const auto read_settings = [&] {
    for (const char* statement : statements) {
      for (const auto& row : answer_to(*connection, tables + statement).rows) {
        facts.settings.values[row[0].value_or("")] = row[1].value_or("");
      }
    }
  };
  examine(facts, target.shown, clock_now, [&] {
    read_settings();
    if (takes_no_locks(facts)) return;
    const LockKey scratch = scratch_key();
    facts.trial = try_lock(open, scratch, target.shown);
    read_settings();  // the first lock has created the table
    facts.pooled = facts.settings.text("session") != std::to_string(connection->login_id());
    facts.here = facts.here || facts.settings.text("here") == "true";
    try {
      // The record would stay for a week, because it keeps the fence of the key.
      connection->query(std::string(dialect.begin_deletes) + "DELETE FROM " +
                            facts.settings.text("table").value_or("dlock") + " WHERE name = " +
                            bytes_literal(options.prefix + "k:" + scratch.text, dialect),
                        short_call());
    } catch (const Error&) {
      // The trial has the reason.
    }
  });
  return facts;
}

/// Whether it is a Galera cluster, or a group in which not only one member takes writes.
bool has_several_primaries(const DatabaseFacts& facts) {
  return is_set(facts, "wsrep_on") || (is_set(facts, "group_replication_group_name") &&
                                       !is_set(facts, "group_replication_single_primary_mode"));
}

/// Whether locks outlive a crash of the server.
Findings check_persistence(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const char* const name = facts.mysql ? "innodb_flush_log_at_trx_commit" : "fsync";
  const std::string flush = told.shown(name), safe = facts.mysql ? "1" : "on";
  return first_rows({
      {"persistence", flush.empty(), not_told(name)},
      {"persistence", told.text("relpersistence") == "u",
       warn("the table dlock is UNLOGGED: a crash empties it, and held locks are free",
            "ALTER TABLE dlock SET LOGGED")},
      {"persistence", flush != safe,
       warn(sentence("{} {}: a crash may forget the newest locks", name, flush),
            sentence("{} = {} in its configuration", name, safe))},
      {"persistence", is_set(facts, "log_bin") && told.text("sync_binlog") != "1",
       warn("sync_binlog is not 1: after a crash of its host, replicas may have other locks",
            "sync_binlog = 1 in its configuration")},
      {"persistence", true, good(sentence("{} {}: locks outlive a crash", name, flush))},
  });
}

/// Whether locks outlive a failover to another server.
Findings check_replication(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const bool waits = is_set(facts, "synchronous_standby_names");
  // The older and the newer name of the state, which is off while no replica confirms in time.
  const bool semi_sync =
      is_set(facts, "Rpl_semi_sync_master_status") || is_set(facts, "Rpl_semi_sync_source_status");
  const auto replicas = told.number("Slaves_connected");
  return first_rows({
      {"replication", has_several_primaries(facts),
       warn("several nodes can be written, and each times leases by its own clock",
            "let all clients name one node in --server")},
      {"replication", waits && told.number("sync") == 0,
       bad("synchronous_standby_names is set, but no such standby is connected: commits wait, and "
           "no lock can be taken",
           "bring the standby back, or change synchronous_standby_names")},
      // dlock commits with synchronous_commit on, whatever its role does by default.
      {"replication", waits,
       good("synchronous_standby_names " + told.shown("synchronous_standby_names") +
            ": a failover to one of them keeps all locks")},
      {"replication", semi_sync,
       good("semi-synchronous: a failover keeps locks, unless the replicas were late before")},
      {"replication", !replicas, not_told("Slaves_connected")},
      {"replication", replicas == 0, good("no replica connected")},
      {"replication", true,
       warn(counted(replicas.value_or(0), "replica") +
                ", asynchronous: a failover may lose the last commits, and then two run until the "
                "first holder's next renewal",
            "synchronous replication, and fencing tokens: dlock guard")},
  });
}

constexpr const char* grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ";

std::string postgres_rights(const std::string& url) {
  std::string schema = schema_in(url);
  for (auto at = schema.find('"'); at != std::string::npos; at = schema.find('"', at + 2)) {
    schema.insert(at, 1, '"');
  }
  const std::string in = schema.empty() ? "public" : '"' + schema + '"';
  const std::string usage = schema.empty() ? "" : "GRANT USAGE ON SCHEMA " + in + " TO \"USER\";\n";
  return sentence("{};\n{}{}{}.dlock TO \"USER\";\n",
                  create_statement(postgres_dialect, in + ".dlock"), usage, grant, in);
}

std::string mysql_rights() {
  return sentence("{};\n{}dlock TO 'USER'@'%';\n", create_statement(mysql_dialect), grant);
}

}  // namespace

std::string label_of(const DatabaseFacts& facts) {
  const Finding persistence = check_persistence(facts).front();
  if (!persistence.told) return "best effort: whether it keeps what it commits is not known";
  if (persistence.level != Level::ok) return "best effort: a crash may forget the newest locks";
  if (has_several_primaries(facts)) return "best effort: several nodes that can be written";
  return is_set(facts, "synchronous_standby_names") && facts.settings.number("sync") != 0
             ? "safe through restarts, and through failovers to a synchronous standby"
             : "safe through restarts, best effort through failovers";
}

Findings check_database(const DatabaseFacts& facts) {
  const ServerInfo& told = facts.settings;
  const Finding reach =
      check_reach(facts, advice_on(facts.unreachable.cause,
                                   "is it running, and do address, database and firewall fit?"));
  const std::string version = told.shown("version");
  const bool mariadb = version.find("MariaDB") != std::string::npos;
  const auto [engine, least] = !facts.mysql ? std::pair("PostgreSQL", ShortVersion{11, 0})
                               : mariadb    ? std::pair("MariaDB", ShortVersion{10, 4})
                                            : std::pair("MySQL", ShortVersion{8, 0});
  const std::string tls = told.shown("Ssl_version"), table = told.shown("table");
  const std::string key = told.text("name_key").value_or("PRI");
  const auto used = told.number("Threads_connected").value_or(0);
  const auto most = told.number("max_connections").value_or(0);
  const std::string in_use = sentence("{} of {} in use", used, most);
  return first_rows({
      {"reach", true, reach, reach.level == Level::error},
      {"engine", true,
       check_versions(engine, {version.substr(0, version.find_first_of("- "))}, least)},
      // After an error here the remaining checks would describe the wrong server.
      {"role", takes_no_locks(facts),
       bad(sentence("{}: it takes no locks", facts.mysql ? "read-only" : "a standby"),
           "name the primary in --server"),
       ends},
      {"role", true, good("primary")},
      {"pooler", facts.pooled,
       warn("a pooler stands between: waiters poll, and a hand-over may take half a second",
            "name the server itself in --server, and waiters are notified")},
      {"pooler", true, good("none")},
      // The server knows only the connection of the pooler.
      {"tls", facts.pooled, not_told("a pooler stands between")},
      {"tls", !tls.empty(), good(tls)},
      {"tls", true,
       check_plain_text(facts.here, facts.mysql ? "ssl-mode=VERIFY_IDENTITY in --server"
                                                : "sslmode=verify-full in --server")},
      {"user", true, good(told.shown("user"))},
      {"table", key != "PRI" && key != "UNI",
       bad("it may hold a name twice, and then two clients hold one lock",
           "ALTER TABLE dlock ADD PRIMARY KEY (name)")},
      {"table", true, good(table.empty() ? "none" : table)},
      {"lock", true, check_lock(facts.trial)},
      {"persistence", true, check_persistence(facts).front()},
      {"replication", true, check_replication(facts).front()},
      // Waiters keep no connection from four fifths on (see SqlBackend::crowded_).
      {"connections", 5 * used > 4 * most,
       warn(in_use + ": waiters keep none and poll, and a renewal needs one",
            "raise max_connections")},
      {"connections", true, good(in_use)},
      {"clock", true, check_clock(facts.clock)},
      {"label", true, good(label_of(facts))},
  });
}

Diagnosis diagnose(const SqlTarget& target, const DoctorOptions& options, const OpenStore& open) {
  const DatabaseFacts facts = examine_database(target, options, open);
  return {target.shown, label_of(facts), check_database(facts)};
}

std::string rights_text(const SqlTarget& target, const DoctorOptions&) {
  return target.mysql ? mysql_rights() : postgres_rights(target.url);
}

}  // namespace dlock
