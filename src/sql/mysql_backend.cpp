#include <algorithm>
#include <set>
#include <utility>

#include "base/wait.hpp"
#include "cas/open_record.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

/// With more wake channels than this, the backend does not look up their listeners.
constexpr std::size_t most_channels = 500;
/// How long it may take to begin to wait for another client's lock.
constexpr milliseconds longest_start{5000};

using Channels = std::set<std::string>;

/// Adds the wake channels in a record. Some may only be part of a user's text.
void add_channels(std::string_view text, Channels& channels) {
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

/// Selects the state with the connections that listen to each of `channels`. Within a statement the
/// server's clock stands still, even while it waits for the table, so this is a statement of its
/// own. Servers call a switch that is off 0 or OFF.
std::string select_listeners(const Channels& channels) {
  std::string text = "SELECT " + std::string(mysql_dialect.clock) +
                     ", @@global.read_only <> 'OFF' OR @@innodb_read_only <> 'OFF', "
                     "CONCAT_WS(' ', NULL";
  for (const std::string& each : channels) text += ", IS_USED_LOCK(" + quoted(each) + ")";
  return text + ")";
}

/// Asks how many connections the server has and allows, and how many this user has, if that number
/// is limited.
constexpr const char* connections_question =
    "SHOW GLOBAL STATUS LIKE 'Threads_connected'; SELECT @@max_connections, "
    "@@max_user_connections, IF(@@max_user_connections > 0, (SELECT COUNT(*) FROM "
    "information_schema.PROCESSLIST WHERE USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), 0)";

/// Whether four fifths of either limit are used, according to the first two answers.
bool is_nearly_full(const std::vector<SqlResult>& answers) {
  if (answers.size() < 2 || answers[1].failed()) return false;
  const auto full = [&](const std::optional<std::string>& used, std::size_t most) {
    const std::int64_t limit = number_in(answers[1].first(most));
    return limit > 0 && 5 * number_in(used) > 4 * limit;
  };
  return full(answers[0].first(1), 0) || full(answers[1].first(2), 1);
}

/// Records in a MySQL or MariaDB database. Every statement commits by itself. A client has a
/// channel while it holds the lock of that name (GET_LOCK). The lock ends with the connection, so
/// that others see whether the client lives, and can wait for its end. MySQL sends no messages: a
/// client waits for another client's end, or polls.
class MysqlBackend final : public SqlBackend {
 public:
  MysqlBackend(MysqlAddress address, const std::string& shown)
      : SqlBackend(mysql_connection(address, shown), mysql_dialect),
        watching_(mysql_connection(std::move(address), shown)) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override {
    prepare(call_options);
    if (own != nullptr && own->waits) take_channel(call_options);
    Snapshot seen = select(name, call_options);
    // A holder needs a channel only if others wait for its end.
    const bool is_awaited =
        own != nullptr &&
        std::any_of(known_channels_.begin(), known_channels_.end(),
                    [&](const auto& each) { return each != channel_in(own->address); });
    if (is_awaited && channel_.empty()) {
      take_channel(call_options);
      seen = select(name, call_options);
    }
    if (own != nullptr) own->address = has_channel_ ? channel_ + "." + login_id() : "";
    return with_lives(std::move(seen), call_options);
  }

  Snapshot look(const std::string& name, const CallOptions& call_options) override {
    prepare(call_options);
    return select(name, call_options);
  }
  bool looks_without_lives() const override { return true; }

  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override {
    const Version next = begin_write(over, update, call_options);
    // ON DUPLICATE KEY might report an existing row as changed if an option file asks for it.
    std::string statements = over.version == 0 ? insert_statement(name, update, next)
                                               : update_statement(name, over.version, update, next);
    // Wakes the watchers of this client, if the write has changed a row.
    const bool departs = has_channel_ && !update.ended.empty();
    if (departs)
      statements += "; DO IF(ROW_COUNT() = 1, RELEASE_LOCK(" + quoted(channel_) + "), 0)";
    const Deadline sent = BootClock::now();
    const auto results = run(statements + "; " + select_record(name), call_options);
    const SqlResult& last = results.back();
    // The write has committed by itself, even if a later statement failed.
    if (results.front().affected > 0) {
      if (departs && last.failed()) connection().close();
      // A waiter that only now begins to watch this client must find that it has departed, even if
      // the client queues again.
      if (departs) channel_.clear();
      has_channel_ = has_channel_ && !departs;
      return next;
    }
    const bool is_last_try = last.error == SqlError::row_locked &&
                             later(BootClock::now(), longest_row_wait) > call_options.deadline;
    // Do not retry: the server could carry out the new write after this client has given up.
    if (is_last_try) sleep_until(call_options.deadline, call_options.cancel_fd);
    const bool is_lost = last.error == SqlError::overtaken || last.error == SqlError::row_locked;
    if (is_lost && !is_last_try) return with_lives(select(name, call_options), call_options);
    if (last.failed()) refuse(last);
    return with_lives(snapshot_from(*(results.end() - 2), last, sent, call_options), call_options);
  }

  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override {
    if (crowded_) connection().close();
    const auto& others = watch.others;
    const std::string channel = others.size() == 1 ? channel_in(others.front().life) : "";
    const bool is_in_vain = channel == std::exchange(in_vain_, "");
    if (crowded_ || channel.empty() || is_in_vain) return await_poll(watch, until, cancel_fd);
    const Wake::Reason why = await_end_of(channel, std::min(until, watch.look), cancel_fd);
    if (why == Wake::Reason::changed) in_vain_ = channel;
    return why;
  }

  bool stays_connected(bool awaited) const override { return awaited && !crowded_; }
  /// A statement contains the record in hexadecimal digits, and the library sends at most 4 MiB.
  std::size_t largest_record() const override { return 2'000'000; }

  void close() override {
    SqlBackend::close();
    watching_->close();
  }

 private:
  void begin_session(const CallOptions&) override {
    channel_.clear();
    has_channel_ = false;
  }

  void take_channel(const CallOptions& call_options) {
    if (!channel_.empty()) return;
    channel_ = new_channel();
    // Servers of a cluster may refuse GET_LOCK.
    const auto results = connection().ask(std::string(connections_question) + "; SELECT GET_LOCK(" +
                                              quoted(channel_) + ", 0), CONNECTION_ID()",
                                          call_options);
    crowded_ = is_nearly_full(results);
    const SqlResult& lock = results.back();
    has_channel_ =
        !crowded_ && !lock.failed() && lock.first() == "1" && lock.first(1) == login_id();
  }

  std::string select_state(const std::string& record) override {
    if (known_record_ != record) known_channels_.clear();
    known_record_ = record;
    return select_listeners(known_channels_);
  }

  Snapshot snapshot_from(const SqlResult& record, const SqlResult& state, Deadline sent,
                         const CallOptions& call_options) override {
    Snapshot seen = SqlBackend::snapshot_from(record, state, sent, call_options);
    Channels channels;
    add_channels(seen.text, channels);
    const bool told = std::includes(known_channels_.begin(), known_channels_.end(),
                                    channels.begin(), channels.end());
    known_channels_ = channels.size() > most_channels ? Channels() : channels;
    if (!told) seen.lives.reset();
    return seen;
  }

  /// Asks for the lives, unless the request that read the record asked for all of them.
  Snapshot with_lives(Snapshot seen, const CallOptions& call_options) {
    if (!seen.lives) seen.lives = lives_of({{"", seen}}, call_options);
    return seen;
  }

  std::optional<Lives> lives_of(const std::vector<NamedRecord>& records,
                                const CallOptions& call_options) override {
    Channels channels;
    for (const NamedRecord& record : records) add_channels(record.seen.text, channels);
    if (channels.empty()) return Lives{};
    if (channels.size() > most_channels) return std::nullopt;
    return state_from(done(select_listeners(channels), call_options).back(), {}).lives;
  }

  /// Waits until the client of this channel has departed or its connection has closed (`changed`).
  Wake::Reason await_end_of(const std::string& channel, Deadline until, int cancel_fd) {
    // MariaDB ends a wait within a second after the waiting client died; other servers may end it
    // only when it times out.
    const std::string wait = "SELECT GET_LOCK(" + quoted(channel) + ", 300)";
    const auto soon = [&] {
      return CallOptions{later(BootClock::now(), longest_start), cancel_fd};
    };
    try {
      if (watched_ != channel || !watching_->is_open()) {
        watching_->close();
        watched_ = channel;
        if (is_nearly_full(watching_->query(connections_question, soon()))) {
          throw_unavailable(name() + ": too many connections", Cause::too_many_clients);
        }
        watching_->send(wait, soon());
      }
      while (true) {
        pollfd fds[] = {{cancel_fd, POLLIN, 0}, {watching_->fd(), POLLIN, 0}};
        if (poll_until(fds, until) == 0) return Wake::Reason::due;
        if (fds[0].revents != 0) return Wake::Reason::interrupted;
        const auto results = watching_->receive(soon());
        const bool timed_out = !results.back().failed() && results.back().first() == "0";
        if (!timed_out) break;
        watching_->send(wait, soon());
      }
    } catch (const Error& error) {
      watching_->close();
      if (error.kind() == ErrorKind::interrupted) return Wake::Reason::interrupted;
    }
    // Close at once, because this connection may now hold another client's lock.
    watching_->close();
    return Wake::Reason::changed;
  }

  std::string channel_;       ///< empty: the client has asked for none yet, or has departed
  bool has_channel_ = false;  ///< the connection holds the lock of channel_
  std::string known_record_;  ///< the record that was read last
  Channels known_channels_;   ///< the channels in that record
  /// Waits for the lock of another client's channel. It is a separate connection, because the
  /// server notices the death of a client at once only if its connection waits for nothing.
  const std::unique_ptr<SqlConnection> watching_;
  std::string watched_;  ///< the channel for which watching_ waits
  std::string in_vain_;  ///< the channel that seemed to have lost its client at the last watch()
};

}  // namespace

std::unique_ptr<CasBackend> open_mysql(MysqlAddress address, const std::string& shown,
                                       const std::optional<Password>& password) {
  if (password) address.password = password;
  return std::make_unique<MysqlBackend>(std::move(address), shown);
}

}  // namespace dlock
