#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/ask_database.hpp"
#include "doctor/examine_database.hpp"
#include "lock/store.hpp"
#include "sql/postgres_backend.hpp"
#include "sql/postgres_connection.hpp"
#include "sql/statements.hpp"

namespace dlock {
namespace {

struct NamedExpression {
  const char* name;
  const char* expression;  ///< NULL if the server does not know or tell
};

/// Those of pg_settings are in the unit of the setting, and NULL in versions that lack it.
constexpr NamedExpression asked_of_postgres[] = {
    {"version", "current_setting('server_version')"},
    {"version_num", "current_setting('server_version_num')"},
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

/// The only row of the only result.
PostgresResult one_row(PostgresConnection& connection, const std::string& statement) {
  auto results =
      connection.query(statement, {later(BootClock::now(), silence_of_a_dead_server), -1});
  if (results.empty()) throw_unavailable("no answer");
  if (results.back().failed()) throw_unavailable(escaped(results.back().message()));
  if (results.back().rows() != 1) throw_unavailable("no answer");
  return std::move(results.back());
}

void ask_settings(PostgresConnection& connection, DatabaseFacts& facts) {
  std::string statement = with_tables(connection.schema()) + "SELECT 1";
  for (const auto& each : asked_of_postgres) statement += ", " + std::string(each.expression);
  const PostgresResult row = one_row(connection, statement);
  int column = 1;
  for (const auto& each : asked_of_postgres) {
    if (const auto value = row.value(0, column++)) {
      facts.settings.values.emplace(each.name, *value);
    }
  }
  facts.pooled = facts.settings.text("pid") != std::to_string(connection.login_pid());
  facts.socket = facts.settings.text("socket") == "t";
  facts.here = facts.socket || facts.settings.text("same_host") == "t";
}

}  // namespace

DatabaseFacts examine_postgres(const std::string& url, const std::string& shown,
                               const std::optional<Password>& password) {
  DatabaseFacts facts;
  PostgresConnection connection({url, password, shown});
  const auto clock = [&] {
    const PostgresResult row =
        one_row(connection, "SELECT " + std::string(clock_expression(Dialect::postgres)));
    return microseconds(parse_number(row.value(0, 0).value_or(""), 0, latest_clock).value_or(0));
  };
  const auto settings = [&](DatabaseFacts& into) { ask_settings(connection, into); };
  ask_database({clock, settings}, shown, facts);
  return facts;
}

}  // namespace dlock
