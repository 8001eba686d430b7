#include "base/duration.hpp"
#include "base/text.hpp"
#include "doctor/facts.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

[[maybe_unused]] CallOptions soon() {
  return {later(BootClock::now(), silence_of_a_dead_server), -1};
}

[[maybe_unused]] SqlResult answer_to(SqlConnection& connection, const std::string& statement) {
  auto results = connection.query(statement, soon());
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
    {"tables",
     "(SELECT string_agg(name, ', ' ORDER BY name) FROM ours HAVING count(*) > 1 AND NOT "
     "bool_or(chosen))"},
    {"missing_rights",
     "(SELECT string_agg(r, ', ') FROM (SELECT r FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', "
     "'DELETE']) r WHERE NOT has_table_privilege((SELECT oid FROM ours ORDER BY chosen DESC LIMIT "
     "1), r) UNION ALL SELECT 'SELECT on pg_stat_activity' WHERE NOT "
     "has_table_privilege('pg_stat_activity', 'SELECT')) missing(r))"},
    {"may_create",
     "(SELECT coalesce(bool_or(has_schema_privilege(oid, 'CREATE')), false) FROM pg_namespace, "
     "target WHERE nspname = schema)"},
    {"fsync", "current_setting('fsync')"},
    {"full_page_writes", "current_setting('full_page_writes')"},
    {"synchronous_commit", "current_setting('synchronous_commit')"},
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
     "(SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout')"},
    {"idle_in_transaction_session_timeout",
     "(SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')"},
    {"statement_timeout", "(SELECT setting FROM pg_settings WHERE name = 'statement_timeout')"}};

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
    "'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'innodb_flush_method', "
    "'innodb_doublewrite', 'log_bin', 'sync_binlog', 'wsrep_on', 'wait_timeout', "
    "'max_statement_time', 'max_connections', 'group_replication_group_name', "
    "'group_replication_single_primary_mode', "
    "'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')",
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected', "
    "'wsrep_cluster_size', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')",
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
  facts.kind = DatabaseKind::mysql;
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

}  // namespace

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

}  // namespace dlock
