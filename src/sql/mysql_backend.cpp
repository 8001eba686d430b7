#include "sql/mysql_backend.hpp"

#include <mysqld_error.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "sql/statement_text.hpp"

namespace dlock {
namespace {

constexpr Dialect in_mysql = Dialect::mysql;

/// UNIX_TIMESTAMP(NOW()) would go through the session's time zone, in which an hour a year comes
/// twice.
constexpr std::string_view clock_now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// More names of wake channels than these are not looked for in a record.
constexpr int most_channels = 200;

/// The columns of select_records().
enum Column : std::size_t {
  clock_column,
  read_only_column,
  storage_read_only_column,
  channel_column,
  living_column,
  name_column,
  version_column,
  body_column
};

/// The records that `condition` chooses, with the state of the server, and which of the connections
/// live that they name: those that hold the lock `dlock_<16 digits>` of their wake channel. A
/// record is the row with channel 0, and further rows of it have one connection each, or NULL.
/// Without any record there is one row.
std::string select_records(const std::string& condition) {
  return "WITH RECURSIVE r AS (SELECT name, version, body FROM dlock " + condition +
         "), n (name, version, i, id, rest) AS (SELECT name, version, 0, CAST(NULL AS SIGNED), "
         "body "
         "FROM r UNION ALL SELECT name, version, i + 1, IS_USED_LOCK(CONCAT('dlock_', "
         "CONVERT(SUBSTRING(rest, LOCATE('dlock_', rest) + 6, 16) USING latin1))), SUBSTRING(rest, "
         "LOCATE('dlock_', rest) + 6) FROM n WHERE LOCATE('dlock_', rest) > 0 AND i < " +
         std::to_string(most_channels) + ") SELECT " + std::string(clock_now) +
         ", @@global.read_only, @@innodb_read_only, i, id, name, version, CASE i WHEN 0 THEN rest "
         "END FROM (SELECT 1) one LEFT JOIN n ON TRUE ORDER BY name, i";
}

std::string select_one(const std::string& name) {
  return select_records("WHERE name = " + bytes_literal(name, in_mysql));
}

std::int64_t number_in(const std::optional<std::string>& value) {
  return parse_number(value.value_or(""), 0, INT64_MAX).value_or(0);
}

/// A statement that changes one row if, and only if, it has written.
std::string write_here(const std::string& name, const Snapshot& over, const Update& update,
                       Version next) {
  if (over.version == 0) {
    return insert_statement(name, update, next, in_mysql) +
           " ON DUPLICATE KEY UPDATE version = version";
  }
  return update_statement(name, over.version, update, next, in_mysql);
}

/// Another transaction was faster, and this one undone.
bool was_overtaken(const MysqlResult& result) {
  return result.error == ER_LOCK_DEADLOCK || result.error == ER_LOCK_WAIT_TIMEOUT ||
         result.error == ER_CHECKREAD;
}

bool is_on(const std::optional<std::string>& value) {
  return value && *value != "0" && *value != "OFF";
}

}  // namespace

std::string_view mysql_schema() {
  return "CREATE TABLE IF NOT EXISTS dlock (name VARBINARY(700) PRIMARY KEY, version BIGINT NOT "
         "NULL, ends BIGINT NOT NULL, body MEDIUMBLOB NOT NULL) ENGINE=InnoDB";
}

void MysqlBackend::refuse(const MysqlResult& failed) const {
  const std::string said = name() + ": " + escaped(failed.message);
  switch (failed.error) {
    case ER_TABLEACCESS_DENIED_ERROR:
    case ER_COLUMNACCESS_DENIED_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
      throw Error(ErrorKind::denied,
                  said + ": `dlock doctor --acl` prints the rights that dlock needs");
    case ER_BAD_FIELD_ERROR:
    case ER_NO_DEFAULT_FOR_FIELD:
    case ER_TRUNCATED_WRONG_VALUE_FOR_FIELD:
      throw Error(ErrorKind::wrong_data, said + ": the table \"dlock\" there is not dlock's own");
    case ER_OPTION_PREVENTS_STATEMENT:
    case ER_READ_ONLY_MODE:
    case ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION:
      throw_unavailable(name() + ": read-only: locks need the primary");
    default:
      throw_unavailable(said);
  }
}

void MysqlBackend::create_table(const CallOptions& call_options) {
  const auto results = connection_.query(std::string(mysql_schema()), call_options);
  if (results.back().failed()) refuse(results.back());
}

std::vector<MysqlResult> MysqlBackend::run(const std::string& statements,
                                           const CallOptions& call_options) {
  auto results = connection_.query(statements, call_options);
  if (results.back().error != ER_NO_SUCH_TABLE) return results;
  create_table(call_options);
  return connection_.query(statements, call_options);
}

std::vector<MysqlResult> MysqlBackend::done(const std::string& statements,
                                            const CallOptions& call_options) {
  auto results = run(statements, call_options);
  if (results.back().failed()) refuse(results.back());
  return results;
}

Snapshot MysqlBackend::server_state(const MysqlResult& result, Deadline sent) {
  if (result.rows.empty()) throw_unavailable(name() + ": no answer");
  const auto& first = result.rows.front();
  if (is_on(first[read_only_column]) || is_on(first[storage_read_only_column])) {
    connection_.close();
    throw_unavailable(name() + ": read-only: locks need the primary");
  }
  Snapshot seen;
  seen.sent = sent;
  seen.connection = connection_.count();
  seen.clock = microseconds(number_in(first[clock_column]));
  seen.alive.emplace();
  for (const auto& row : result.rows) {
    if (number_in(row[channel_column]) >= most_channels) {
      seen.alive.reset();
      break;
    }
    if (row[living_column]) seen.alive->insert(*row[living_column]);
  }
  return seen;
}

Snapshot MysqlBackend::snapshot_from(const MysqlResult& result, Deadline sent) {
  Snapshot seen = server_state(result, sent);
  const auto& record = result.rows.front();
  if (!record[name_column]) return seen;
  seen.version = number_in(record[version_column]);
  seen.text = record[body_column].value_or("");
  if (seen.version == 0 || seen.text.empty()) {
    throw Error(ErrorKind::wrong_data,
                name() + ": a row of the table \"dlock\" is not dlock's own");
  }
  return seen;
}

void MysqlBackend::note_connection() {
  if (known_connection_ == connection_.count()) return;
  known_connection_ = connection_.count();
  channels_.clear();
}

void MysqlBackend::listen(const std::string& channel, const CallOptions& call_options) {
  if (channels_.contains(channel)) return;
  // Servers of a cluster may refuse such locks.
  const auto results = connection_.query(
      "SELECT GET_LOCK(" + quoted(channel) + ", 0), CONNECTION_ID()", call_options);
  const bool answered = !results.back().failed() && !results.back().rows.empty();
  channels_[channel] = answered && results.back().rows.front()[0] == "1" &&
                       results.back().rows.front()[1] == std::to_string(connection_.login_id());
}

Snapshot MysqlBackend::read(const std::string& name, const std::string& channel,
                            const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  if (!channel.empty()) listen(channel, call_options);
  const Deadline sent = BootClock::now();
  return snapshot_from(done(select_one(name), call_options).back(), sent);
}

std::variant<Version, Snapshot> MysqlBackend::write(const std::string& name, const Snapshot& over,
                                                    const Update& update,
                                                    const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  if (update.names_connection && over.connection != connection_.count()) {
    throw_unavailable(connection_.name() + ": the connection was closed");
  }
  const Version next = next_version(over);
  const Deadline sent = BootClock::now();
  const auto results =
      run(write_here(name, over, update, next) + "; " + select_one(name), call_options);
  if (was_overtaken(results.back())) return read(name, "", call_options);
  if (results.back().failed()) refuse(results.back());
  if (results.front().affected > 0) return next;
  return snapshot_from(results.back(), sent);
}

RecordPage MysqlBackend::list(const std::string& prefix, const std::string& after,
                              const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const auto result =
      done(select_records(page_condition(prefix, after, page_rows, in_mysql)), call_options).back();
  RecordPage page;
  page.read = server_state(result, sent);
  for (const auto& row : result.rows) {
    if (!row[name_column] || number_in(row[channel_column]) != 0) continue;
    page.records.push_back({*row[name_column], row[body_column].value_or("")});
  }
  page.last = page.records.size() < page_rows;
  return page;
}

std::int64_t MysqlBackend::count(const std::string& prefix, const CallOptions& call_options) {
  const auto results = done(count_statement(prefix, in_mysql), call_options);
  return number_in(results.back().rows.front()[0]);
}

void MysqlBackend::sweep(const std::string& prefix, const std::string& after,
                         const CallOptions& call_options) {
  // By name and version, so that no row is locked but those that go: ranges would lock gaps.
  const auto found = done("SELECT p.name, p.version FROM (SELECT name, version, ends FROM dlock " +
                              page_condition(prefix, after, rows_per_sweep, in_mysql) +
                              ") p WHERE p.ends < " + std::string(clock_now),
                          call_options);
  std::string removal;
  for (const auto& row : found.back().rows) {
    removal += (removal.empty() ? "" : "; ") + std::string("DELETE FROM dlock WHERE name = ") +
               bytes_literal(row[0].value_or(""), in_mysql) +
               " AND version = " + row[1].value_or("0");
  }
  if (!removal.empty()) done(removal, call_options);
}

std::string MysqlBackend::connection_id() const {
  const bool is_seen = connection_.is_open() && known_connection_ == connection_.count() &&
                       std::any_of(channels_.begin(), channels_.end(),
                                   [](const auto& channel) { return channel.second; });
  return is_seen ? std::to_string(connection_.login_id()) : "";
}

std::variant<std::string, Wake::Reason> MysqlBackend::next_message(const std::string&, Deadline,
                                                                   int) {
  throw_unavailable(name() + ": the connection hears no messages");
}

}  // namespace dlock
