#include "sql/mysql_backend.hpp"

#include <mysqld_error.h>

#include <algorithm>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/record.hpp"
#include "sql/statements.hpp"

namespace dlock {
namespace {

constexpr Dialect in_mysql = Dialect::mysql;

/// With more wake channels than this, their listeners are not looked up.
constexpr std::size_t most_channels = 500;

/// The columns of select_one().
enum RecordColumn : std::size_t { version_column, body_column };

/// The first columns of select_place(); the listeners follow.
enum PlaceColumn : std::size_t {
  clock_column,
  read_only_column,
  storage_read_only_column,
  place_columns
};

/// Selects a record; always returns one row, with NULLs if there is no record.
std::string select_one(const std::string& name) {
  return "SELECT d.version, d.body FROM (SELECT 1) one LEFT JOIN dlock d ON d.name = " +
         bytes_literal(name, in_mysql);
}

/// Adds the wake channels in a record. Some may only be part of a user's text.
void add_channels(std::string_view text, std::set<std::string>& channels) {
  constexpr std::string_view begins = "dlock_";
  constexpr std::size_t size = begins.size() + 16;
  for (auto at = text.find(begins); at != std::string_view::npos; at = text.find(begins, at + 1)) {
    const auto channel = text.substr(at, size);
    const bool whole =
        channel.size() == size &&
        channel.find_first_not_of("0123456789abcdef", begins.size()) == std::string_view::npos;
    if (whole) channels.emplace(channel);
  }
}

/// Selects one row: the clock and state of the server, and the connections that listen to each of
/// `channels`, or NULL. Within a statement the server's clock stands still, even while it waits for
/// the table. A clock older than the record would shorten another client's lease, so this is a
/// separate statement after the one that reads the record.
std::string select_place(const std::set<std::string>& channels) {
  std::string text = "SELECT " + std::string(clock_expression(in_mysql)) +
                     ", @@global.read_only, @@innodb_read_only";
  for (const std::string& each : channels) text += ", IS_USED_LOCK(" + quoted(each) + ")";
  return text;
}

Lives listeners_in(const MysqlResult::Row& place) {
  Lives lives;
  for (std::size_t i = place_columns; i < place.columns.size(); ++i) {
    if (place[i]) lives.ids.emplace(*place[i], 0);
  }
  return lives;
}

std::int64_t number_in(const std::optional<std::string>& value) {
  return parse_number(value.value_or(""), 0, INT64_MAX).value_or(0);
}

/// A statement that changes one row if, and only if, it has written.
std::string write_here(const std::string& name, const Snapshot& over, const Update& update,
                       Version next) {
  // ON DUPLICATE KEY might report an existing row as changed if an option file asks for it.
  if (over.version == 0) return insert_statement("dlock", name, update, next, in_mysql);
  return update_statement("dlock", name, over.version, update, next, in_mysql);
}

/// Whether another transaction was faster, so that the server has rolled this one back.
bool was_overtaken(const MysqlResult& result) {
  return result.error == ER_DUP_ENTRY || result.error == ER_LOCK_DEADLOCK ||
         result.error == ER_LOCK_WAIT_TIMEOUT || result.error == ER_CHECKREAD;
}

/// Asks how many connections the server has and allows, and how many this user has, if that number
/// is limited.
std::string connections_question() {
  return "SHOW GLOBAL STATUS LIKE 'Threads_connected'; SELECT @@max_connections, "
         "@@max_user_connections, IF(@@max_user_connections > 0, (SELECT COUNT(*) FROM "
         "information_schema.PROCESSLIST WHERE USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), 0)";
}

/// Whether four fifths of either limit are used, according to the first two answers.
bool is_nearly_full(const std::vector<MysqlResult>& answers) {
  if (answers.size() < 2 || answers[1].failed()) return false;
  const auto& limits = answers[1].first();
  const auto full = [&](const std::optional<std::string>& used, std::size_t most) {
    return number_in(limits[most]) > 0 && 5 * number_in(used) > 4 * number_in(limits[most]);
  };
  return full(answers[0].first()[1], 0) || full(limits[2], 1);
}

/// How long it may take to begin to wait for another client's lock.
constexpr milliseconds longest_start{5000};

bool is_on(const std::optional<std::string>& value) {
  return value && *value != "0" && *value != "OFF";
}

}  // namespace

std::string_view mysql_schema() {
  return "CREATE TABLE IF NOT EXISTS dlock (name VARBINARY(700) PRIMARY KEY, version BIGINT NOT "
         "NULL, ends BIGINT NOT NULL, body MEDIUMBLOB NOT NULL) ENGINE=InnoDB";
}

void MysqlBackend::refuse(const MysqlResult& failed) {
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
      close();  // the name may lead to another server now
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

Snapshot MysqlBackend::state_from(const MysqlResult::Row& place, Deadline sent) {
  if (is_on(place[read_only_column]) || is_on(place[storage_read_only_column])) {
    close();
    throw_unavailable(name() + ": read-only: locks need the primary");
  }
  const auto clock = parse_number(place[clock_column].value_or(""), 0, latest_time.count());
  if (!clock) throw_unavailable(name() + ": it tells no time");
  Snapshot seen;
  seen.sent = sent;
  seen.clock = microseconds(*clock);
  return seen;
}

std::string MysqlBackend::select_known(const std::string& name) {
  if (known_record_ != name) known_channels_.clear();
  known_record_ = name;
  return select_one(name) + "; " + select_place(known_channels_);
}

Snapshot MysqlBackend::snapshot_from(const std::vector<MysqlResult>& results, Deadline sent,
                                     const CallOptions& call_options) {
  constexpr std::size_t own_results = 2;
  const MysqlResult& record = results[results.size() - own_results];
  const auto& place = results.back().first();
  if (record.rows.size() > 1) {
    throw Error(ErrorKind::wrong_data,
                name() + ": the table \"dlock\" there holds a name twice: it has no primary key");
  }
  const auto& row = record.first();
  Snapshot seen = state_from(place, sent);
  if (row[version_column]) {
    seen.version = number_in(row[version_column]);
    seen.text = row[body_column].value_or("");
    if (seen.version == 0 || seen.text.empty()) {
      throw Error(ErrorKind::wrong_data,
                  name() + ": a row of the table \"dlock\" is not dlock's own");
    }
  }
  std::set<std::string> channels;
  add_channels(seen.text, channels);
  const bool told = std::includes(known_channels_.begin(), known_channels_.end(), channels.begin(),
                                  channels.end());
  known_channels_ = channels.size() > most_channels ? std::set<std::string>() : channels;
  seen.lives = told ? listeners_in(place) : listeners(channels, call_options);
  return seen;
}

/// Returns nothing if there are too many channels.
std::optional<Lives> MysqlBackend::listeners(const std::set<std::string>& channels,
                                             const CallOptions& call_options) {
  if (channels.empty()) return Lives{};
  if (channels.size() > most_channels) return std::nullopt;
  return listeners_in(done(select_place(channels), call_options).back().first());
}

void MysqlBackend::note_connection() {
  if (known_connection_ == connection_.count()) return;
  known_connection_ = connection_.count();
  channel_.clear();
  has_channel_ = false;
}

void MysqlBackend::take_channel(const CallOptions& call_options) {
  if (!channel_.empty()) return;
  channel_ = new_channel();
  // Servers of a cluster may refuse GET_LOCK.
  const auto results = connection_.query(
      connections_question() + "; SELECT GET_LOCK(" + quoted(channel_) + ", 0), CONNECTION_ID()",
      call_options);
  crowded_ = is_nearly_full(results);
  const bool answered = !crowded_ && !results.back().failed();
  has_channel_ = answered && results.back().first()[0] == "1" &&
                 results.back().first()[1] == std::to_string(connection_.login_id());
}

Snapshot MysqlBackend::read_known(const std::string& name, const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  return snapshot_from(done(select_known(name), call_options), sent, call_options);
}

Snapshot MysqlBackend::read(const std::string& name, OwnLife* own,
                            const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  if (own != nullptr && own->waits) take_channel(call_options);
  Snapshot seen = read_known(name, call_options);
  // A holder needs a channel only if others wait for its end.
  const bool is_awaited =
      own != nullptr &&
      std::any_of(known_channels_.begin(), known_channels_.end(),
                  [&](const auto& each) { return each != channel_in(own->address); });
  if (is_awaited && channel_.empty()) {
    take_channel(call_options);
    seen = read_known(name, call_options);
  }
  if (own != nullptr) {
    own->address = has_channel_ ? channel_ + "." + std::to_string(connection_.login_id()) : "";
  }
  return seen;
}

std::variant<Version, Snapshot> MysqlBackend::write(const std::string& name, const Snapshot& over,
                                                    const Update& update,
                                                    const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  const bool is_of_another =
      !update.begun.empty() && !update.begun.contains(std::to_string(connection_.login_id()));
  if (is_of_another) throw_unavailable(connection_.name() + ": the connection was closed");
  // Wakes the watchers of this client, if the statement before it has changed a row.
  const bool departs = has_channel_ && !update.ended.empty();
  const std::string let_go =
      departs ? "; DO IF(ROW_COUNT() = 1, RELEASE_LOCK(" + quoted(channel_) + "), 0)" : "";
  const Version next = next_version(over);
  const Deadline sent = BootClock::now();
  const auto results =
      run(write_here(name, over, update, next) + let_go + "; " + select_known(name), call_options);
  // The write has committed by itself, even if a later statement failed.
  if (results.front().affected > 0) {
    if (departs && results.back().failed()) connection_.close();
    // A waiter that only now begins to watch this client must find that it has departed, even if
    // the client queues again.
    if (departs) channel_.clear();
    has_channel_ = has_channel_ && !departs;
    return next;
  }
  const bool is_last_try = results.back().error == ER_LOCK_WAIT_TIMEOUT &&
                           later(BootClock::now(), longest_row_wait) > call_options.deadline;
  // Do not retry, because the server could execute it after this client has given up.
  if (is_last_try) sleep_until(call_options.deadline, call_options.cancel_fd);
  if (was_overtaken(results.back()) && !is_last_try) return read(name, nullptr, call_options);
  if (results.back().failed()) refuse(results.back());
  return snapshot_from(results, sent, call_options);
}

RecordPage MysqlBackend::list(const std::string& prefix, const std::string& after,
                              const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const auto results = done(select_place({}) + "; SELECT name, body FROM dlock " +
                                page_condition(prefix, after, page_rows, in_mysql),
                            call_options);
  RecordPage page;
  Snapshot seen = state_from(results.front().first(), sent);
  std::set<std::string> channels;
  for (const auto& row : results.back().rows) {
    seen.text = row[1].value_or("");
    add_channels(seen.text, channels);
    page.records.push_back({row[0].value_or(""), seen});
  }
  const auto lives = listeners(channels, call_options);
  for (NamedRecord& record : page.records) record.seen.lives = lives;
  page.last = page.records.size() < page_rows;
  return page;
}

std::int64_t MysqlBackend::count(const std::string& prefix, const CallOptions& call_options) {
  const auto results = done(count_statement("dlock", prefix, in_mysql), call_options);
  return number_in(results.back().first()[0]);
}

void MysqlBackend::sweep(const std::string& prefix, const std::string& after,
                         const CallOptions& call_options) {
  // Delete by name and version, so that only deleted rows are locked: ranges would lock gaps.
  const auto found = done("SELECT p.name, p.version FROM (SELECT name, version, ends FROM dlock " +
                              page_condition(prefix, after, rows_per_sweep, in_mysql) +
                              ") p WHERE p.ends < " + std::string(clock_expression(in_mysql)),
                          call_options);
  std::string removal;
  for (const auto& row : found.back().rows) {
    removal += (removal.empty() ? "" : "; ") + std::string("DELETE FROM dlock WHERE name = ") +
               bytes_literal(row[0].value_or(""), in_mysql) +
               " AND version = " + row[1].value_or("0");
  }
  if (!removal.empty()) done(removal, call_options);
}

std::variant<std::string, Wake::Reason> MysqlBackend::watch(RecordWatch& watch, Deadline until,
                                                            int cancel_fd) {
  if (crowded_) connection_.close();
  const std::string channel = watch.others.size() == 1 ? channel_in(watch.others.front().life) : "";
  const bool is_in_vain = channel == std::exchange(in_vain_, "");
  if (crowded_ || channel.empty() || is_in_vain) {
    const Deadline next = std::min(until, watch.poll);
    return sleep_until(next, cancel_fd) ? Wake::Reason::interrupted : Wake::Reason::due;
  }
  const auto why = await_end_of(channel, std::min(until, watch.look), cancel_fd);
  if (why == Wake::Reason::changed) in_vain_ = channel;
  return why;
}

/// Waits until the client of this channel has departed or its connection has closed (`changed`).
Wake::Reason MysqlBackend::await_end_of(const std::string& channel, Deadline until, int cancel_fd) {
  // MariaDB ends a wait within a second after its client died; other servers may end it only when
  // it times out.
  const std::string wait = "SELECT GET_LOCK(" + quoted(channel) + ", 300)";
  try {
    if (watched_ != channel || !watching_.is_open()) {
      watching_.close();
      watched_ = channel;
      const CallOptions soon{later(BootClock::now(), longest_start), cancel_fd};
      if (is_nearly_full(watching_.query(connections_question(), soon))) {
        throw_unavailable(name() + ": too many connections", Cause::too_many_clients);
      }
      watching_.send(wait, soon);
    }
    while (true) {
      pollfd fds[] = {{cancel_fd, POLLIN, 0}, {watching_.answered_fd(), POLLIN, 0}};
      if (poll_until(fds, until) == 0) return Wake::Reason::due;
      if (fds[0].revents != 0) return Wake::Reason::interrupted;
      const CallOptions soon{later(BootClock::now(), longest_start), cancel_fd};
      const auto results = watching_.receive(soon);
      const bool timed_out = !results.back().failed() && results.back().first()[0] == "0";
      if (!timed_out) break;
      watching_.send(wait, soon);
    }
  } catch (const Error& error) {
    watching_.close();
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
  }
  // Close at once, because this connection may now hold another client's lock.
  watching_.close();
  return Wake::Reason::changed;
}

void MysqlBackend::close() {
  connection_.close();
  watching_.close();
}

}  // namespace dlock
