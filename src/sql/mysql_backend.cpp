#include "sql/mysql_backend.hpp"

#include <mysqld_error.h>

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "sql/statements.hpp"

namespace dlock {
namespace {

constexpr Dialect in_mysql = Dialect::mysql;

/// More wake channels than these are not looked for.
constexpr std::size_t most_channels = 500;

/// The columns of select_one().
enum RecordColumn : std::size_t { version_column, body_column };

/// The first columns of select_place(); listeners follow.
enum PlaceColumn : std::size_t {
  clock_column,
  read_only_column,
  storage_read_only_column,
  place_columns
};

/// A record, or NULLs: always one row.
std::string select_one(const std::string& name) {
  return "SELECT d.version, d.body FROM (SELECT 1) one LEFT JOIN dlock d ON d.name = " +
         bytes_literal(name, in_mysql);
}

/// The wake channels that a record names: what looks like one may be part of a user's text.
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

/// One row: the clock and state of the server, and the connections that listen to each of
/// `channels`, or NULL. Within a statement the server's clock stands still, also while it waits for
/// the table. A clock that is older than the record would make another client's lease shorter, so
/// it comes with a statement of its own, after the one that reads the record.
std::string select_place(const std::set<std::string>& channels) {
  std::string text = "SELECT " + std::string(clock_expression(in_mysql)) +
                     ", @@global.read_only, @@innodb_read_only";
  for (const std::string& each : channels) text += ", IS_USED_LOCK(" + quoted(each) + ")";
  return text;
}

std::set<std::string> listeners_in(const MysqlResult::Row& place) {
  std::set<std::string> ids;
  for (std::size_t i = place_columns; i < place.columns.size(); ++i) {
    if (place[i]) ids.insert(*place[i]);
  }
  return ids;
}

std::int64_t number_in(const std::optional<std::string>& value) {
  return parse_number(value.value_or(""), 0, INT64_MAX).value_or(0);
}

/// A statement that changes one row if, and only if, it has written.
std::string write_here(const std::string& name, const Snapshot& over, const Update& update,
                       Version next) {
  // ON DUPLICATE KEY would count a row that is there as changed if an option file says so.
  if (over.version == 0) return insert_statement("dlock", name, update, next, in_mysql);
  return update_statement("dlock", name, over.version, update, next, in_mysql);
}

/// Another transaction was faster, and this one undone.
bool was_overtaken(const MysqlResult& result) {
  return result.error == ER_DUP_ENTRY || result.error == ER_LOCK_DEADLOCK ||
         result.error == ER_LOCK_WAIT_TIMEOUT || result.error == ER_CHECKREAD;
}

/// Asks for how many connections the server has and allows; then for those of this user, if their
/// number is limited.
std::string connections_question() {
  return "SHOW GLOBAL STATUS LIKE 'Threads_connected'; SELECT @@max_connections, "
         "@@max_user_connections, IF(@@max_user_connections > 0, (SELECT COUNT(*) FROM "
         "information_schema.PROCESSLIST WHERE USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), 0)";
}

/// By the first two answers: whether four fifths of either are taken.
bool is_nearly_full(const std::vector<MysqlResult>& answers) {
  if (answers.size() < 2 || answers[1].failed()) return false;
  const auto& limits = answers[1].first();
  const auto full = [&](const std::optional<std::string>& used, std::size_t most) {
    return number_in(limits[most]) > 0 && 5 * number_in(used) > 4 * number_in(limits[most]);
  };
  return full(answers[0].first()[1], 0) || full(limits[2], 1);
}

/// So long it takes at most to begin to wait for another client's lock.
constexpr milliseconds longest_start{5000};

/// MariaDB ends a wait within a second of the death of its client; others may do so at its end.
std::string wait_for(const std::string& lock) {
  return "SELECT GET_LOCK(" + quoted(lock) + ", 300)";
}

/// If two clients waited for one lock, a stopped client that is given it would hold up the other.
std::string lock_of_second(const std::string& channel) { return channel + ".2"; }

std::string release_of(const std::string& channel) {
  return "RELEASE_LOCK(" + quoted(channel) + ") + RELEASE_LOCK(" + quoted(lock_of_second(channel)) +
         ")";
}

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
      close();  // the name may lead to another server by now
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
  if (!place[clock_column]) throw_unavailable(name() + ": no answer");
  const auto clock = parse_number(*place[clock_column], 0, latest_time.count());
  if (!clock) throw_unavailable(name() + ": it tells no time");
  Snapshot seen;
  seen.sent = sent;
  seen.connection = connection_.count();
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
  if (results.size() < own_results) throw_unavailable(name() + ": no answer");
  const MysqlResult& record = results[results.size() - own_results];
  const auto& place = results.back().first();
  if (record.rows.empty()) throw_unavailable(name() + ": no answer");
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
  seen.alive = told ? listeners_in(place) : listeners(channels, call_options);
  return seen;
}

/// Nothing if they are too many.
std::optional<std::set<std::string>> MysqlBackend::listeners(const std::set<std::string>& channels,
                                                             const CallOptions& call_options) {
  if (channels.empty()) return std::set<std::string>();
  if (channels.size() > most_channels) return std::nullopt;
  return listeners_in(done(select_place(channels), call_options).back().first());
}

void MysqlBackend::note_connection() {
  if (known_connection_ == connection_.count()) return;
  known_connection_ = connection_.count();
  channels_.clear();
}

void MysqlBackend::listen(const std::string& channel, const CallOptions& call_options) {
  if (channels_.contains(channel)) return;
  // Servers of a cluster may refuse such locks.
  const auto results = connection_.query(connections_question() + "; SELECT GET_LOCK(" +
                                             quoted(channel) + ", 0), CONNECTION_ID(), GET_LOCK(" +
                                             quoted(lock_of_second(channel)) + ", 0)",
                                         call_options);
  crowded_ = is_nearly_full(results);
  const bool answered = !crowded_ && !results.back().failed();
  channels_[channel] = answered && results.back().first()[0] == "1" &&
                       results.back().first()[1] == std::to_string(connection_.login_id());
}

Snapshot MysqlBackend::read(const std::string& name, const std::string& channel,
                            const CallOptions& call_options) {
  connection_.connect(call_options);
  note_connection();
  if (!channel.empty()) listen(channel, call_options);
  const Deadline sent = BootClock::now();
  return snapshot_from(done(select_known(name), call_options), sent, call_options);
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
  const auto results = run(write_here(name, over, update, next) + (update.departs ? let_go() : "") +
                               "; " + select_known(name),
                           call_options);
  // It has committed by itself, whatever became of the statements behind it.
  if (results.front().affected > 0) {
    if (update.departs && results.back().failed()) connection_.close();
    if (update.departs) channels_.clear();
    return next;
  }
  const bool is_last_try = results.back().error == ER_LOCK_WAIT_TIMEOUT &&
                           later(BootClock::now(), longest_row_wait) > call_options.deadline;
  // The server could do the next one after its client has given up.
  if (is_last_try) sleep_until(call_options.deadline, call_options.cancel_fd);
  if (was_overtaken(results.back()) && !is_last_try) return read(name, "", call_options);
  if (results.back().failed()) refuse(results.back());
  return snapshot_from(results, sent, call_options);
}

RecordPage MysqlBackend::list(const std::string& prefix, const std::string& after,
                              const CallOptions& call_options) {
  const Deadline sent = BootClock::now();
  const auto results = done(select_place({}) + "; SELECT name, body FROM dlock " +
                                page_condition(prefix, after, page_rows, in_mysql),
                            call_options);
  if (results.size() < 2) throw_unavailable(name() + ": no answer");
  RecordPage page;
  page.read = state_from(results.front().first(), sent);
  std::set<std::string> channels;
  for (const auto& row : results.back().rows) {
    page.records.push_back({row[0].value_or(""), row[1].value_or("")});
    add_channels(page.records.back().text, channels);
  }
  page.read.alive = listeners(channels, call_options);
  page.last = page.records.size() < page_rows;
  return page;
}

std::int64_t MysqlBackend::count(const std::string& prefix, const CallOptions& call_options) {
  const auto results = done(count_statement("dlock", prefix, in_mysql), call_options);
  return number_in(results.back().first()[0]);
}

void MysqlBackend::sweep(const std::string& prefix, const std::string& after,
                         const CallOptions& call_options) {
  // By name and version, so that no row is locked but those that go: ranges would lock gaps.
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

/// What ends the locks that others wait for, if the statement before it has changed a row.
std::string MysqlBackend::let_go() const {
  std::string releases;
  for (const auto& [channel, held] : channels_) {
    if (held) releases += (releases.empty() ? "" : " + ") + release_of(channel);
  }
  return releases.empty() ? "" : "; DO IF(ROW_COUNT() = 1, " + releases + ", 0)";
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

std::optional<Wake::Reason> MysqlBackend::await_departure(const Watched& watched, Deadline until,
                                                          int cancel_fd) {
  const std::string lock = watched.as_second ? lock_of_second(watched.channel) : watched.channel;
  try {
    if (watched_ != lock || !watch_.is_open()) {
      watch_.close();
      watched_ = lock;
      const CallOptions soon{later(BootClock::now(), longest_start), cancel_fd};
      if (is_nearly_full(watch_.query(connections_question(), soon))) {
        throw_unavailable(name() + ": too many connections", Cause::too_many_clients);
      }
      watch_.send(wait_for(lock), soon);
    }
    while (true) {
      pollfd fds[] = {{cancel_fd, POLLIN, 0}, {watch_.answered_fd(), POLLIN, 0}};
      if (poll_until(fds, until) == 0) return Wake::Reason::due;
      if (fds[0].revents != 0) return Wake::Reason::interrupted;
      const CallOptions soon{later(BootClock::now(), longest_start), cancel_fd};
      const auto results = watch_.receive(soon);
      const bool timed_out = !results.back().failed() && results.back().first()[0] == "0";
      if (!timed_out) break;
      watch_.send(wait_for(lock), soon);
    }
  } catch (const Error& error) {
    watch_.close();
    if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
  }
  // The lock of another client's channel goes back at once.
  watch_.close();
  return Wake::Reason::changed;
}

void MysqlBackend::close() {
  connection_.close();
  watch_.close();
}

}  // namespace dlock
