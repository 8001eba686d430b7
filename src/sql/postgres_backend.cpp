#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "base/wait.hpp"
#include "cas/open_record.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

/// Whether four fifths of a connection limit are used: of the server for ordinary roles, of the
/// role, or of the database. NULL counts as no.
constexpr std::string_view crowd_condition =
    "(SELECT 5 * count(datid) > 4 * (current_setting('max_connections')::int - "
    "current_setting('superuser_reserved_connections')::int) OR 5 * count(*) FILTER (WHERE usename "
    "= session_user) > 4 * (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = "
    "session_user) OR 5 * count(*) FILTER (WHERE datname = current_database()) > 4 * (SELECT "
    "nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()) FROM "
    "pg_stat_activity)";

/// How long a LISTEN may take: from its start, and beyond the end of the sleep.
constexpr milliseconds longest_listen{5000};
constexpr milliseconds last_listen{200};

/// The settings give the transaction the same meaning whatever the server or a role has set.
constexpr const char* begin_to_write =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit TO on; SET "
    "LOCAL statement_timeout TO 5000; ";
constexpr std::size_t results_before_write = 3;

/// The channel for messages to all clients that watch a record.
std::string channel_of(const std::string& record) { return "dlock_latch_" + short_name(record); }

/// The write of a record, and the messages to send with it.
std::string with_messages(const std::string& write, const std::string& record,
                          const std::vector<Wakeup>& wakeups) {
  if (wakeups.empty()) return write;
  const std::string values = joined(wakeups, "), (", [&](const Wakeup& wakeup) {
    const std::string channel = wakeup.to.empty() ? channel_of(record) : channel_in(wakeup.to);
    return quoted(channel) + ", " + quoted(wakeup.message);
  });
  return "WITH w AS (" + write + ") SELECT pg_notify(n.c, n.m) FROM w, (VALUES (" + values +
         ")) n(c, m)";
}

/// The only table `dlock` in a PostgreSQL database, in any schema: search_path would find another
/// table for each role. No session has to last from one request to the next, so that the backend
/// works through poolers. NOTIFY sends messages to clients, in the transaction of the write; behind
/// a pooler there are none.
class PostgresBackend final : public SqlBackend {
 public:
  PostgresBackend(const std::string& url, const std::string& shown,
                  const std::optional<Password>& password)
      : SqlBackend(postgres_connection(url, shown, password), postgres_dialect),
        schema_(schema_in(url)),
        channel_(new_channel()) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override {
    prepare(call_options);
    const bool waits = own != nullptr && own->waits;
    // A pooler would pass a listening session on to its next client.
    const bool listen = waits && hears() && channels_.insert(channel_).second;
    Snapshot seen = select(name, call_options, listen ? "LISTEN " + channel_ + "; " : "");
    if (own != nullptr) own->address = waits && hears() ? channel_ + "." + login_id() : "";
    return seen;
  }

  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override {
    const Version next = begin_write(over, update, call_options);
    const Deadline sent = BootClock::now();
    const auto results =
        run(begin_to_write +
                with_messages(conditional_write(name, over, update, next), name, update.wakeups) +
                "; " + select_record(name) + "; COMMIT",
            call_options);
    // The server has rolled the transaction back because another one was faster, or kept the row
    // locked for longer than the administrator's `lock_timeout`.
    const SqlError error = results.back().error;
    if (error == SqlError::overtaken || error == SqlError::row_locked) {
      return select(name, call_options, "ROLLBACK; ");
    }
    if (results.back().failed()) refuse(results.back());
    const auto* written = &results[results_before_write];
    if (!written->rows.empty()) return next;
    return snapshot_from(written[1], written[2], sent, call_options);
  }

  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override {
    if (crowded_) connection().close();
    if (!hears()) return await_poll(watch, until, cancel_fd);
    const bool at_record = watch.own.empty();
    const std::string channel = at_record ? channel_of(watch.record) : channel_in(watch.own);
    if (at_record && !(connection().is_open() && channels_.contains(channel))) {
      const Deadline end =
          std::min(later(BootClock::now(), longest_listen), later(until, last_listen));
      prepare({end, cancel_fd});
      done("LISTEN " + channel, {end, cancel_fd});
      channels_.insert(channel);
      // The record may have changed before the LISTEN, so the caller must read it again.
      return Wake::Reason::changed;
    }
    while (true) {
      if (!connection().is_open() || !channels_.contains(channel)) {
        throw_unavailable(this->name() + ": the connection no longer listens");
      }
      while (auto heard = connection().next_notification()) {
        if (heard->channel == channel) return std::move(heard->message);
      }
      if (const auto end = end_of_sleep(until, cancel_fd)) return *end;
      pollfd fds[] = {{cancel_fd, POLLIN, 0}, {connection().fd(), POLLIN, 0}};
      poll_until(fds, until);
    }
  }

 private:
  void begin_session(const CallOptions& call_options) override {
    channels_.clear();
    const auto results = done(
        with_tables(schema_) + "SELECT pg_backend_pid(), pg_is_in_recovery(), " +
            std::string(crowd_condition) +
            ", quote_ident(schema) || '.dlock', count(oid), string_agg(name, ', ' ORDER BY name), "
            "coalesce(bool_or(chosen), false) FROM target LEFT JOIN ours ON true GROUP BY schema",
        call_options);
    const auto text = [&](std::size_t column) { return results.back().first(column).value_or(""); };
    is_direct_ = text(0) == login_id();
    if (text(1) == "t") refuse_replica();
    crowded_ = is_direct_ && text(2) == "t";
    const std::string target = text(3), tables = text(5);
    const bool is_one = text(4) == "1" && schema_.empty();
    if (!is_one && text(6) != "t" && !tables.empty()) {
      throw Error(ErrorKind::denied,
                  this->name() + ": it has locks in " + escaped(tables) +
                      ", and clients of different tables do not exclude each other: drop all but "
                      "one, or name the schema of one with ?dlock-schema=NAME");
    }
    table_ = is_one ? tables : target;
    if (tables.empty()) create_table(call_options);
  }

  /// The next connection looks for the table, which may have another name by now.
  void replace_table(const CallOptions&) override {
    close();
    throw_unavailable(this->name() + ": the table " + escaped(table_) + " has gone");
  }

  std::string select_state(const std::string&) override {
    return "SELECT " + std::string(postgres_dialect.clock) +
           ", pg_is_in_recovery(), (SELECT string_agg(pid::text, ' ') FROM pg_stat_activity), "
           "pg_backend_pid()";
  }

  Snapshot snapshot_from(const SqlResult& record, const SqlResult& state, Deadline sent,
                         const CallOptions& call_options) override {
    constexpr std::size_t pid_column = 3;
    is_direct_ = state.first(pid_column) == login_id();
    return SqlBackend::snapshot_from(record, state, sent, call_options);
  }

  std::optional<Lives> lives_of(const std::vector<NamedRecord>&,
                                const CallOptions& call_options) override {
    return state_from(done(select_state(""), call_options).back(), {}).lives;
  }

  /// A statement that returns a row if, and only if, it has written.
  std::string conditional_write(const std::string& name, const Snapshot& over, const Update& update,
                                Version next) const {
    if (over.version == 0) {
      // ON CONFLICT (name) makes the server refuse a table that could contain a name twice.
      return insert_statement(name, update, next) + " ON CONFLICT (name) DO NOTHING RETURNING 1";
    }
    // Waiting for another client's transaction would be useless, because it changes the version.
    return update_statement(name, over.version, update, next) + " AND EXISTS (SELECT 1 FROM " +
           table_ + " WHERE name = " + literal(name) +
           " FOR NO KEY UPDATE SKIP LOCKED) RETURNING 1";
  }

  /// Whether the connection leads to one session, which receives messages, and is kept.
  bool hears() const { return is_direct_ && !crowded_; }

  const std::string schema_;        ///< the `dlock-schema` of the URL; empty if it has none
  const std::string channel_;       ///< of this client's messages
  std::set<std::string> channels_;  ///< the channels that the connection listens on
  bool is_direct_ = false;          ///< the connection leads to one server process, not to a pooler
};

}  // namespace

std::string with_tables(const std::string& schema) {
  const std::string target =
      schema.empty() ? "'public'"
                     : "convert_from(" + bytes_literal(schema, postgres_dialect) + ", 'UTF8')";
  return "WITH target(schema) AS (SELECT " + target +
         "::text), ours AS (SELECT c.oid, c.relpersistence, quote_ident(n.nspname) || '.dlock' AS "
         "name, " +
         (schema.empty() ? "false" : "n.nspname = schema") +
         " AS chosen FROM target, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
         "c.relname = 'dlock' AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND 4 = "
         "(SELECT count(*) FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped AND "
         "attname IN ('name', 'version', 'ends', 'body'))) ";
}

std::unique_ptr<CasBackend> open_postgres(const std::string& url, const std::string& shown,
                                          const std::optional<Password>& password) {
  return std::make_unique<PostgresBackend>(url, shown, password);
}

}  // namespace dlock
