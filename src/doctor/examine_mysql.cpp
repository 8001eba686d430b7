#include "base/duration.hpp"
#include "base/endpoint.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "doctor/ask_database.hpp"
#include "doctor/examine_database.hpp"
#include "lock/store.hpp"
#include "sql/mysql_connection.hpp"
#include "sql/statements.hpp"

namespace dlock {
namespace {

/// Each tells names and values; servers differ in what they know.
constexpr const char* asked_of_mysql[] = {
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', "
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

MysqlResult answer_to(MysqlConnection& connection, const std::string& statement) {
  auto results =
      connection.query(statement, {later(BootClock::now(), silence_of_a_dead_server), -1});
  if (results.empty()) throw_unavailable("no answer");
  if (results.back().failed()) throw_unavailable(escaped(results.back().message));
  return std::move(results.back());
}

}  // namespace

DatabaseFacts examine_mysql(MysqlAddress address, const std::string& shown,
                            const std::optional<Password>& password) {
  DatabaseFacts facts;
  facts.kind = DatabaseKind::mysql;
  if (password) address.password = password;
  facts.socket = !address.socket_path.empty() || address.host.empty();
  facts.here = facts.socket || is_this_host(address.host);
  MysqlConnection connection(std::move(address), shown);
  const auto clock = [&] {
    const MysqlResult result =
        answer_to(connection, "SELECT " + std::string(clock_expression(Dialect::mysql)));
    return microseconds(parse_number(result.first()[0].value_or(""), 0, latest_clock).value_or(0));
  };
  const auto settings = [&](DatabaseFacts& into) {
    for (const char* statement : asked_of_mysql) {
      for (const auto& row : answer_to(connection, statement).rows) {
        into.settings.values[row[0].value_or("")] = row[1].value_or("");
      }
    }
    into.pooled = into.settings.text("session") != std::to_string(connection.login_id());
  };
  ask_database({clock, settings}, shown, facts);
  return facts;
}

}  // namespace dlock
