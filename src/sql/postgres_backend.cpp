#include "sql/postgres_backend.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/record.hpp"
#include "sql/statements.hpp"

namespace dlock {
namespace {

constexpr std::string_view server_state =
    ", pg_is_in_recovery(), pg_backend_pid(), (SELECT string_agg(pid::text, ' ') FROM "
    "pg_stat_activity)";

/// Whether four fifths of a connection limit are used: of the server for ordinary roles, of the
/// role, or of the database. NULL counts as no.
constexpr std::string_view crowd_condition =
    "(SELECT 5 * count(datid) > 4 * (current_setting('max_connections')::int - "
    "current_setting('superuser_reserved_connections')::int) OR 5 * count(*) FILTER (WHERE usename "
    "= session_user) > 4 * (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = "
    "session_user) OR 5 * count(*) FILTER (WHERE datname = current_database()) > 4 * (SELECT "
    "nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()) FROM "
    "pg_stat_activity)";

/// How long it may take to begin to listen, and how long after the end of the sleep.
constexpr milliseconds longest_listen{5000};
constexpr milliseconds last_listen{200};

constexpr Dialect dialect = Dialect::postgres;

/// Selects a record with the state of the server; always returns one row, with NULLs if there is no
/// record.
std::string select_record(const std::string& table, const std::string& name) {
  return "SELECT " + std::string(clock_expression(dialect)) + std::string(server_state) +
         ", d.version, encode(d.body, 'hex') FROM (SELECT 1) one LEFT JOIN " + table +
         " d ON d.name = " + bytes_literal(name, dialect);
}

std::string lock_row(const std::string& table, const std::string& name) {
  return "SELECT 1 FROM " + table + " WHERE name = " + bytes_literal(name, dialect) +
         " FOR NO KEY UPDATE";
}

/// A statement that returns a row if, and only if, it has written.
std::string conditional_write(const std::string& table, const std::string& name,
                              const Snapshot& over, bool reserved, const Update& update,
                              Version next) {
  if (over.version == 0) {
    // Naming the column refuses a table that could contain a name twice.
    return insert_statement(table, name, update, next, dialect) +
           " ON CONFLICT (name) DO NOTHING RETURNING 1";
  }
  const std::string write = update_statement(table, name, over.version, update, next, dialect);
  if (reserved) return write + " RETURNING 1";
  // Waiting for another client's transaction would be useless, because it changes the version.
  return write + " AND EXISTS (" + lock_row(table, name) + " SKIP LOCKED) RETURNING 1";
}

/// The channel of those that watch a record.
std::string channel_of(const std::string& record) {
  std::array<char, 16> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), fnv1a(record), 16).ptr;
  return "dlock_latch_" + std::string(digits.data(), end);
}

/// The write of a record, and the messages to send with it.
std::string with_messages(const std::string& write, const std::string& record,
                          const std::vector<Wakeup>& wakeups) {
  if (wakeups.empty()) return write;
  std::string values;
  for (const Wakeup& wakeup : wakeups) {
    const std::string channel = wakeup.to.empty() ? channel_of(record) : channel_in(wakeup.to);
    values +=
        (values.empty() ? "(" : ", (") + quoted(channel) + ", " + quoted(wakeup.message) + ")";
  }
  return "WITH w AS (" + write + ") SELECT pg_notify(n.c, n.m) FROM w, (VALUES " + values +
         ") n(c, m)";
}

/// Whether the server rolled this transaction back because another one was faster, or kept the row
/// locked for longer than the administrator's `lock_timeout`.
bool was_lost(const PostgresResult& result) {
  const auto state = result.sqlstate();
  return state == "40001" || state == "40P01" || state == "55P03";
}

/// The statements of one query are one transaction, which a role may start read-only by default.
constexpr const char* in_writing = "SET TRANSACTION READ WRITE; ";

/// The settings give the transaction the same meaning whatever the server or a role has set.
constexpr const char* begin_to_write =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit TO on; "
    "SET LOCAL statement_timeout TO 5000; ";

}  // namespace

std::string postgres_schema(const std::string& table) {
  return "CREATE TABLE IF NOT EXISTS " + table +
         " (name bytea PRIMARY KEY, version bigint NOT NULL, ends bigint NOT NULL, body bytea NOT "
         "NULL) WITH (fillfactor = 50)";
}

std::string with_tables(const std::string& schema) {
  const std::string target =
      schema.empty() ? "'public'" : "convert_from(" + bytes_literal(schema, dialect) + ", 'UTF8')";
  return "WITH target(schema) AS (SELECT " + target +
         "::text), ours AS (SELECT c.oid, "
         "c.relowner, c.relpersistence, quote_ident(n.nspname) || '.dlock' AS name, " +
         (schema.empty() ? "false" : "n.nspname = schema") +
         " AS chosen FROM target, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
         "WHERE c.relname = 'dlock' AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' "
         "AND 4 = (SELECT count(*) FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped "
         "AND attname IN ('name', 'version', 'ends', 'body'))) ";
}

PostgresBackend::PostgresBackend(PostgresTerms terms)
    : connection_(std::move(terms)), channel_(new_channel()) {}

const std::string& PostgresBackend::table(const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  if (table_.empty()) find_table(call_options);
  return table_;
}

void PostgresBackend::find_table(const CallOptions& call_options) {
  const auto results =
      done(with_tables(connection_.schema()) +
               "SELECT pg_backend_pid(), quote_ident(schema) || '.dlock', "
               "count(oid), string_agg(name, ', ' ORDER BY name), "
               "coalesce(bool_or(chosen), false), pg_is_in_recovery(), " +
               std::string(crowd_condition) + " FROM target LEFT JOIN ours ON true GROUP BY schema",
           call_options);
  const PostgresResult& found = results.back();
  const auto text = [&](int column) { return std::string(found.value(0, column).value_or("")); };
  is_direct_ = text(0) == std::to_string(connection_.login_pid());
  refuse_standby(found.value(0, 5));
  crowded_ = is_direct_ && text(6) == "t";
  const std::string target = text(1), tables = text(3);
  const bool is_one = text(2) == "1" && connection_.schema().empty();
  if (!is_one && text(4) != "t" && !tables.empty()) {
    throw Error(ErrorKind::denied,
                name() + ": it has locks in " + escaped(tables) +
                    ", and clients of different tables do not exclude each other: drop all but "
                    "one, or name the schema of one with ?dlock-schema=NAME");
  }
  table_ = is_one ? tables : target;
  if (tables.empty()) create_table(call_options);
}

void PostgresBackend::refuse(const PostgresResult& failed) {
  const std::string state = failed.sqlstate();
  const std::string said = name() + ": " + escaped(failed.message());
  // A failed statement may leave its transaction open.
  if (connection_.is_open() && connection_.in_transaction()) connection_.close();
  if (state == "42501") {
    const bool of_activity = said.find("pg_stat_activity") != std::string::npos;
    throw Error(ErrorKind::denied,
                said + (of_activity ? ": it tells which clients live: GRANT SELECT ON "
                                      "pg_stat_activity to dlock's user"
                                    : ": `dlock doctor --acl` prints the rights that dlock needs "
                                      "to " +
                                          escaped(table_)));
  }
  const std::set<std::string_view> of_another_shape{"42703", "42804", "42883",
                                                    "42809", "42P10", "23502"};
  if (of_another_shape.contains(state)) {
    throw Error(ErrorKind::wrong_data, said + ": the table \"dlock\" there is not dlock's own");
  }
  if (state == "25006") {
    connection_.close();  // the name may lead to another server now
    throw_unavailable(name() + ": read-only: locks need the primary");
  }
  throw Error(state.starts_with("28") ? ErrorKind::denied : ErrorKind::unavailable, said);
}

void PostgresBackend::refuse_standby(std::optional<std::string_view> in_recovery) {
  if (in_recovery != "t") return;
  connection_.close();
  throw_unavailable(name() + ": a standby: locks need the primary");
}

void PostgresBackend::create_table(const CallOptions& call_options) {
  const auto results = connection_.query(in_writing + postgres_schema(table_), call_options);
  for (const PostgresResult& result : results) {
    // Another client may create it at the same time. The loser gets one of three errors: about the
    // catalogue's index, the table, or the type that each table has.
    const auto& code = result.sqlstate();
    const bool is_there = code == "23505" || code == "42P07" || code == "42710";
    if (code == "42501" || code == "3F000") {
      throw Error(ErrorKind::denied, name() + ": " + escaped(result.message()) +
                                         ": cannot create the table " + escaped(table_) +
                                         ": run what `dlock doctor --acl` prints as a role that " +
                                         "may, or name another schema with ?dlock-schema=NAME");
    }
    if (result.failed() && !is_there) refuse(result);
  }
}

std::vector<PostgresResult> PostgresBackend::run(const std::string& statements,
                                                 const CallOptions& call_options) {
  auto results = connection_.query(statements, call_options);
  if (results.back().sqlstate() == "42P01") {
    connection_.close();
    throw_unavailable(name() + ": the table " + escaped(table_) + " has gone");
  }
  note_connection();
  return results;
}

std::vector<PostgresResult> PostgresBackend::done(const std::string& statements,
                                                  const CallOptions& call_options) {
  auto results = run(statements, call_options);
  if (results.back().failed()) refuse(results.back());
  return results;
}

void PostgresBackend::note_connection() {
  if (known_connection_ == connection_.count()) return;
  known_connection_ = connection_.count();
  is_direct_ = false;
  table_.clear();
  reserved_.clear();
  channels_.clear();
}

microseconds PostgresBackend::clock_in(const PostgresResult& row) const {
  const auto clock = parse_number(row.value(0, 0).value_or(""), 0, latest_time.count());
  if (!clock) throw_unavailable(name() + ": it tells no time");
  return microseconds(*clock);
}

Snapshot PostgresBackend::snapshot_from(const PostgresResult& row, Deadline sent) {
  const auto number = [&](int column) {
    return parse_number(row.value(0, column).value_or(""), 0, INT64_MAX);
  };
  Snapshot seen;
  seen.sent = sent;
  seen.clock = clock_in(row);
  refuse_standby(row.value(0, 1));
  is_direct_ = number(2).value_or(0) == connection_.login_pid();
  seen.lives.emplace();
  std::string_view pids = row.value(0, 3).value_or("");
  while (!pids.empty()) seen.lives->ids.emplace(take_until(pids, ' '), 0);
  if (!row.value(0, 4)) return seen;
  seen.version = number(4).value_or(0);
  seen.text = from_hex(row.value(0, 5).value_or(""));
  if (seen.version == 0 || seen.text.empty()) {
    throw Error(ErrorKind::wrong_data,
                name() + ": a row of the table \"dlock\" is not dlock's own");
  }
  return seen;
}

Snapshot PostgresBackend::read(const std::string& name, OwnLife* own,
                               const CallOptions& call_options) {
  const std::string select = select_record(table(call_options), name);
  const bool waits = own != nullptr && own->waits;
  // A pooler would pass a listening session on to its next client.
  const bool listen = waits && hears() && !channels_.contains(channel_);
  const Deadline sent = BootClock::now();
  const auto results = done((listen ? "LISTEN " + channel_ + "; " : "") + select, call_options);
  Snapshot seen = snapshot_from(results.back(), sent);
  if (listen) channels_.insert(channel_);
  if (own != nullptr) {
    own->address = waits && hears() ? channel_ + "." + std::to_string(connection_.login_pid()) : "";
  }
  return seen;
}

std::variant<Version, Snapshot> PostgresBackend::write(const std::string& name,
                                                       const Snapshot& over, const Update& update,
                                                       const CallOptions& call_options) {
  const std::string table = this->table(call_options);
  const bool reserved = reserved_ == name;
  const std::size_t write_result = reserved ? 0 : 3;
  const bool is_of_another =
      !update.begun.empty() && !update.begun.contains(std::to_string(connection_.login_pid()));
  if (is_of_another) throw_unavailable(connection_.name() + ": the connection was closed");
  reserved_.clear();
  const Version next = next_version(over);
  const Deadline sent = BootClock::now();
  const auto results =
      run((reserved ? "" : begin_to_write) +
              with_messages(conditional_write(table, name, over, reserved, update, next), name,
                            update.wakeups) +
              "; " + select_record(table, name) + "; COMMIT",
          call_options);
  if (results.back().failed()) {
    if (!was_lost(results.back())) refuse(results.back());
    abandon();
    return read(name, nullptr, call_options);
  }
  if (results[write_result].rows() > 0) return next;
  Snapshot seen = snapshot_from(results[write_result + 1], sent);
  // The row was reserved, so nobody else can have changed it.
  const bool is_hidden = reserved && over.version != 0 && seen.version == over.version;
  if (is_hidden &&
      done("SELECT row_security_active('" + table + "')", call_options).back().value(0, 0) == "t") {
    throw Error(ErrorKind::denied, connection_.name() + ": row security of " + escaped(table) +
                                       " hides rows from UPDATE: dlock's user needs a policy for "
                                       "all commands");
  }
  return seen;
}

Snapshot PostgresBackend::reserve(const std::string& name, const CallOptions& call_options) {
  const std::string table = this->table(call_options);
  // A pooler has few connections to the server, and the wait for the row would occupy one.
  if (!is_direct_) return read(name, nullptr, call_options);
  const Deadline sent = BootClock::now();
  const auto results =
      run(std::string(begin_to_write) + "SET LOCAL idle_in_transaction_session_timeout TO 1000; " +
              lock_row(table, name) + "; " + select_record(table, name),
          call_options);
  if (was_lost(results.back())) {
    done("ROLLBACK", call_options);
    return read(name, nullptr, call_options);
  }
  if (results.back().failed()) refuse(results.back());
  Snapshot seen = snapshot_from(results.back(), sent);
  reserved_ = name;
  return seen;
}

void PostgresBackend::abandon() {
  reserved_.clear();
  if (connection_.is_open() && connection_.in_transaction()) connection_.close();
}

RecordPage PostgresBackend::list(const std::string& prefix, const std::string& after,
                                 const CallOptions& call_options) {
  const std::string table = this->table(call_options);
  const Deadline sent = BootClock::now();
  const auto results =
      done("SELECT " + std::string(clock_expression(dialect)) +
               "; SELECT encode(name, 'hex'), encode(body, 'hex') FROM " + table + " " +
               page_condition(prefix, after, page_rows, dialect) + "; " + select_record(table, ""),
           call_options);
  RecordPage page;
  // The clock is read before the rows, however long their transfer takes, and the living pids after
  // them, so that they include every waiter in a row. PostgreSQL reads the pids once in a
  // transaction, so the first statement must not select them.
  Snapshot seen = snapshot_from(results.back(), sent);
  seen.clock = clock_in(results.front());
  const PostgresResult& rows = results[1];
  for (int row = 0; row < rows.rows(); ++row) {
    seen.text = from_hex(rows.value(row, 1).value_or(""));
    page.records.push_back({from_hex(rows.value(row, 0).value_or("")), seen});
  }
  page.last = rows.rows() < page_rows;
  return page;
}

std::int64_t PostgresBackend::count(const std::string& prefix, const CallOptions& call_options) {
  const auto results = done(count_statement(table(call_options), prefix, dialect), call_options);
  return parse_number(results.back().value(0, 0).value_or(""), 0, INT64_MAX).value_or(0);
}

void PostgresBackend::sweep(const std::string& prefix, const std::string& after,
                            const CallOptions& call_options) {
  // A row that another transaction has just renewed no longer meets the condition at its deletion.
  const std::string table = this->table(call_options);
  done(in_writing + ("DELETE FROM " + table) + " WHERE name IN (SELECT name FROM " + table + " " +
           page_condition(prefix, after, rows_per_sweep, dialect) + ") AND ends < " +
           std::string(clock_expression(dialect)),
       call_options);
}

std::variant<std::string, Wake::Reason> PostgresBackend::watch(RecordWatch& watch, Deadline until,
                                                               int cancel_fd) {
  if (crowded_) connection_.close();
  if (!hears()) {
    const Deadline next = std::min(until, watch.poll);
    return sleep_until(next, cancel_fd) ? Wake::Reason::interrupted : Wake::Reason::due;
  }
  const std::string channel = watch.own.empty() ? channel_of(watch.record) : channel_in(watch.own);
  if (watch.own.empty() && !channels_.contains(channel)) {
    const Deadline end =
        std::min(later(BootClock::now(), longest_listen), later(until, last_listen));
    done("LISTEN " + channel, {end, cancel_fd});
    // The record may have changed before.
    channels_.insert(channel);
    return Wake::Reason::changed;
  }
  return next_message(channel, until, cancel_fd);
}

std::variant<std::string, Wake::Reason> PostgresBackend::next_message(const std::string& channel,
                                                                      Deadline until,
                                                                      int cancel_fd) {
  if (!channels_.contains(channel) || known_connection_ != connection_.count()) {
    throw_unavailable(name() + ": the connection no longer listens");
  }
  try {
    while (auto heard = connection_.next_notification({until, cancel_fd})) {
      if (heard->channel == channel) return std::move(heard->message);
      if (const auto end = end_of_sleep(until, cancel_fd)) return *end;
    }
    return Wake::Reason::due;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
    throw;
  }
}

}  // namespace dlock
