#include "sql/sql_backend.hpp"

#include <algorithm>
#include <cctype>

#include "base/duration.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "cas/open_record.hpp"

namespace dlock {
namespace {

/// How many rows a page of a list has at most, and how many a sweep looks at.
constexpr int page_rows = 500;
constexpr int rows_per_sweep = 50;

/// The columns of select_state().
enum StateColumn : std::size_t { clock_column, read_only_column, lives_column };

}  // namespace

Error tls_error(std::string_view said, const std::string& message) {
  // Lower case, and without quoted parts: names of hosts and files do not show the kind.
  std::string words;
  bool quoted = false;
  for (const char c : said) {
    if (c == '"') quoted = !quoted;
    if (!quoted) words += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  const auto has_one_of = [&](std::initializer_list<std::string_view> texts) {
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return words.find(text) != std::string::npos;
    });
  };
  // Check these first, because they contain "certificate", too.
  if (has_one_of({"certificate file", "private key file", "no certificate or crl found",
                  "no start line", "key values mismatch", "key type mismatch"})) {
    return {ErrorKind::usage, message};
  }
  // These are the alerts about certificates and names, and OpenSSL's texts for a certificate that
  // is not accepted; other alerts indicate a server problem.
  if (has_one_of({"certificate", "hostname mismatch", "hostname verification", "does not match",
                  "ip address mismatch", "fingerprint", "finger print", "crl ", "unknown ca",
                  "unrecognized name", "access denied", "issuer", "critical extension",
                  "constraint", "too weak", "key usage"})) {
    return {ErrorKind::denied, message, Cause::certificate};
  }
  return {ErrorKind::unavailable, message};
}

std::string schema_in(std::string_view url, std::string* without) {
  constexpr std::string_view name = "dlock-schema=";
  std::string schema, rest(take_until(url, '?'));
  for (char separator = '?'; !url.empty();) {
    const auto parameter = take_until(url, '&');
    if (parameter.starts_with(name)) {
      schema = percent_decoded(parameter.substr(name.size()));
    } else {
      rest += std::exchange(separator, '&') + std::string(parameter);
    }
  }
  if (without != nullptr) *without = rest;
  return schema;
}

void SqlConnection::connect(const CallOptions& call_options) {
  if (is_open() && !is_stale()) return;
  close();
  std::vector<Host> all;
  try {
    all = hosts(call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    throw error.reworded(name() + ": " + error.what());
  }
  std::optional<Error> trouble;
  // The libraries themselves would give all the time to a host that never answers.
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      login_id_ = log_in(all[i], share_of(call_options, all.size() - i));
      ++count_;
      return;
    } catch (const Error& error) {
      if (is_open()) abandon();
      const bool is_away = error.kind() == ErrorKind::unavailable;
      // Another host may have a certificate that is trusted.
      if (!is_away && error.cause() != Cause::certificate) throw error.after_good_files(count_ > 0);
      // A host that is unreachable now may answer later.
      if (is_away || !trouble) trouble = error;
    }
  }
  throw Error(*trouble);
}

std::vector<SqlResult> SqlConnection::ask(const std::string& statements,
                                          const CallOptions& call_options) {
  send(statements, call_options);
  if (call_options.sent != nullptr) call_options.sent->raise();
  return receive(call_options);
}

short SqlConnection::await(short events, const CallOptions& call_options) {
  pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0}, {fd(), events, 0}};
  poll_until(fds, call_options.deadline);
  // A server that sends without end gets no more time than a silent one.
  const bool in_time = BootClock::now() < call_options.deadline;
  if (fds[0].revents != 0 || !in_time) give_up(call_options);
  return fds[1].revents;
}

void SqlConnection::give_up(const CallOptions& call_options) {
  abandon();
  if (readable(call_options.cancel_fd)) throw_interrupted();
  throw_unavailable(name() + ": no answer in time");
}

void SqlConnection::broke(const std::string& message) {
  abandon();
  throw_unavailable(name() + ": the connection broke" +
                    (message.empty() ? "" : ": " + escaped(message)));
}

std::string create_statement(const SqlDialect& dialect, std::string_view table) {
  return "CREATE TABLE IF NOT EXISTS " + std::string(table.empty() ? dialect.table : table) + " " +
         std::string(dialect.columns);
}

std::string bytes_literal(std::string_view bytes, const SqlDialect& dialect) {
  return std::string(dialect.begin_bytes) + hex(bytes) + "'";
}

std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ' ' || c == '_' || c == '.' || c == '-';
  });
  if (!plain) throw Error(ErrorKind::bug, "a message cannot be quoted");
  return "'" + text + "'";
}

std::string new_channel() {
  constexpr std::size_t bytes = 8;
  return "dlock_" + random_hex(bytes);
}

std::int64_t number_in(const std::optional<std::string>& value) {
  return parse_number(value.value_or(""), 0, INT64_MAX).value_or(0);
}

void SqlBackend::prepare(const CallOptions& call_options) {
  connection_->connect(call_options);
  if (known_connection_ == connection_->count()) return;
  begin_session(call_options);
  known_connection_ = connection_->count();
}

std::vector<SqlResult> SqlBackend::run(const std::string& statements,
                                       const CallOptions& call_options) {
  auto results = connection_->ask(statements, call_options);
  if (results.back().error != SqlError::no_table) return results;
  replace_table(call_options);
  return connection_->ask(statements, call_options);
}

std::vector<SqlResult> SqlBackend::done(const std::string& statements,
                                        const CallOptions& call_options) {
  auto results = run(statements, call_options);
  if (results.back().failed()) refuse(results.back());
  return results;
}

void SqlBackend::create_table(const CallOptions& call_options) {
  const auto results = connection_->ask(
      std::string(dialect_.begin_deletes) + create_statement(dialect_, table_), call_options);
  const SqlResult& result = results.back();
  if (!result.failed() || result.error == SqlError::overtaken) return;
  refuse(result,
         "cannot create the table " + escaped(table_) + std::string(dialect_.other_table) + ": ");
}

void SqlBackend::refuse(const SqlResult& failed, const std::string& doing) {
  // Other failures may have left a transaction open.
  if (failed.error != SqlError::row_locked) close();
  const std::string said = name() + ": " + doing + escaped(failed.message);
  switch (failed.error) {
    case SqlError::denied:
      throw Error(ErrorKind::denied,
                  said + ": `dlock doctor --acl` prints the rights that dlock needs");
    case SqlError::other_table:
      throw Error(ErrorKind::wrong_data, said + ": the table \"dlock\" there is not dlock's own");
    case SqlError::read_only:
      refuse_replica();
    default:
      throw_unavailable(said);
  }
}

void SqlBackend::refuse_replica() {
  close();  // the name may lead to another server now
  throw_unavailable(name() + ": read-only, or a standby: locks need the primary");
}

std::string SqlBackend::select_record(const std::string& name) {
  // There is always one row, with NULLs if there is no record.
  return "SELECT d.version, d.body FROM (SELECT 1) one LEFT JOIN " + table_ +
         " d ON d.name = " + literal(name) + "; " + select_state(name);
}

Snapshot SqlBackend::select(const std::string& name, const CallOptions& call_options,
                            const std::string& before) {
  const Deadline sent = BootClock::now();
  const auto results = done(before + select_record(name), call_options);
  return snapshot_from(*(results.end() - 2), results.back(), sent, call_options);
}

Snapshot SqlBackend::state_from(const SqlResult& state, Deadline sent) {
  const auto read_only = state.first(read_only_column);
  if (read_only == "t" || read_only == "1") refuse_replica();
  Snapshot seen;
  seen.sent = sent;
  seen.clock = microseconds(number_in(state.first(clock_column)));
  seen.lives.emplace();
  const std::string ids = state.first(lives_column).value_or("");
  for (std::string_view rest = ids; !rest.empty();) {
    seen.lives->ids.emplace(take_until(rest, ' '), 0);
  }
  return seen;
}

Snapshot SqlBackend::snapshot_from(const SqlResult& record, const SqlResult& state, Deadline sent,
                                   const CallOptions&) {
  Snapshot seen = state_from(state, sent);
  if (record.rows.size() > 1) {
    throw Error(ErrorKind::wrong_data,
                name() + ": the table \"dlock\" there holds a name twice: it has no primary key");
  }
  if (!record.first()) return seen;
  seen.version = number_in(record.first());
  seen.text = record.first(1).value_or("");
  if (seen.version == 0 || seen.text.empty()) {
    throw Error(ErrorKind::wrong_data,
                name() + ": a row of the table \"dlock\" is not dlock's own");
  }
  return seen;
}

Version SqlBackend::begin_write(const Snapshot& over, const Update& update,
                                const CallOptions& call_options) {
  prepare(call_options);
  const bool is_former = !update.begun.empty() && !update.begun.contains(login_id());
  if (is_former) throw_unavailable(name() + ": the connection was closed");
  while (true) {
    const Version next = random_version();
    if (next != over.version) return next;
  }
}

std::string SqlBackend::insert_statement(const std::string& name, const Update& update,
                                         Version version) const {
  return "INSERT INTO " + table_ + " (name, version, ends, body) VALUES (" + literal(name) + ", " +
         std::to_string(version) + ", " + std::to_string(update.ends.count()) + ", " +
         literal(update.text) + ")";
}

std::string SqlBackend::update_statement(const std::string& name, Version over,
                                         const Update& update, Version version) const {
  return "UPDATE " + table_ + " SET version = " + std::to_string(version) +
         ", ends = " + std::to_string(update.ends.count()) + ", body = " + literal(update.text) +
         " WHERE name = " + literal(name) + " AND version = " + std::to_string(over);
}

std::string SqlBackend::is_under(const std::string& prefix) const {
  // Prefixes end in a colon. The names with a prefix are those from the prefix up to the same text
  // with the next byte in place of the colon.
  std::string end = prefix;
  ++end.back();
  return "name >= " + literal(prefix) + " AND name < " + literal(end);
}

std::string SqlBackend::page_condition(const std::string& prefix, const std::string& after,
                                       int rows) const {
  return " FROM " + table_ + " WHERE " + is_under(prefix) + " AND name > " + literal(after) +
         " ORDER BY name LIMIT " + std::to_string(rows);
}

RecordPage SqlBackend::list(const std::string& prefix, const std::string& after,
                            const CallOptions& call_options) {
  prepare(call_options);
  // Select the server's clock before the rows: their transfer may take long after `sent`.
  const Deadline sent = BootClock::now();
  const auto results =
      done(select_state("") + "; SELECT name, body" + page_condition(prefix, after, page_rows),
           call_options);
  Snapshot seen = state_from(results.front(), sent);
  RecordPage page;
  for (const auto& row : results.back().rows) {
    seen.text = row[1].value_or("");
    page.records.push_back({row[0].value_or(""), seen});
  }
  // Read the lives after the rows, so that they include every waiter in a row.
  const auto lives = lives_of(page.records, call_options);
  for (NamedRecord& record : page.records) record.seen.lives = lives;
  page.last = page.records.size() < page_rows;
  return page;
}

std::int64_t SqlBackend::count(const std::string& prefix, const CallOptions& call_options) {
  prepare(call_options);
  const auto results =
      done("SELECT count(*) FROM " + table_ + " WHERE " + is_under(prefix), call_options);
  return number_in(results.back().first());
}

void SqlBackend::sweep(const std::string& prefix, const std::string& after,
                       const CallOptions& call_options) {
  prepare(call_options);
  // Deletes by name and version, so that MySQL locks only deleted rows, and no gaps of ranges.
  const auto found = done("SELECT p.name, p.version FROM (SELECT name, version, ends" +
                              page_condition(prefix, after, rows_per_sweep) +
                              ") p WHERE p.ends < " + std::string(dialect_.clock),
                          call_options);
  std::string removal;
  for (const auto& row : found.back().rows) {
    removal += (removal.empty() ? std::string(dialect_.begin_deletes) : "; ") + "DELETE FROM " +
               table_ + " WHERE name = " + literal(row[0].value_or("")) +
               " AND version = " + row[1].value_or("0");
  }
  if (!removal.empty()) done(removal, call_options);
}

#ifndef DLOCK_WITH_POSTGRESQL
std::unique_ptr<CasBackend> open_postgres(const std::string&, const std::string&,
                                          const std::optional<Password>&) {
  throw_usage("this dlock was built without PostgreSQL");
}
#endif

#ifndef DLOCK_WITH_MYSQL
std::unique_ptr<CasBackend> open_mysql(MysqlAddress, const std::string&,
                                       const std::optional<Password>&) {
  throw_usage("this dlock was built without MySQL and MariaDB");
}
#endif

}  // namespace dlock
