#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "sql/postgres_connection.hpp"

namespace dlock {

/// The statement that an administrator runs once if dlock may not create its table; `table` is the
/// name in SQL syntax.
std::string postgres_schema(const std::string& table = "public.dlock");

/// The start of a statement. It defines `ours`, all tables of locks in the database (oid, name,
/// whether the user chose it), and `target`, the schema for a new one: `schema`, or `public`.
std::string with_tables(const std::string& schema);

/// Records as rows of the only table `dlock` in a PostgreSQL database, in any schema: search_path
/// would find another table for each role. One message is one request, and no session has to last
/// from one request to the next, so that it works through poolers. Messages to clients are sent by
/// NOTIFY, in the transaction of the write; behind a pooler there are none. Only a client that lost
/// a race, and not behind a pooler, locks the row until its write.
class PostgresBackend final : public CasBackend {
 public:
  explicit PostgresBackend(PostgresTerms terms);

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  Snapshot reserve(const std::string& name, const CallOptions& call_options) override;
  void abandon() override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  void close() override { connection_.close(); }
  std::string name() const override { return connection_.name(); }

 private:
  /// The name of the table. It is looked up once per connection, and the table is created if
  /// missing.
  const std::string& table(const CallOptions& call_options);
  std::vector<PostgresResult> run(const std::string& statements, const CallOptions& call_options);
  /// Like run(), but throws if a statement failed.
  std::vector<PostgresResult> done(const std::string& statements, const CallOptions& call_options);
  /// Throws the error for a failed result.
  [[noreturn]] void refuse(const PostgresResult& failed);
  void find_table(const CallOptions& call_options);
  void refuse_standby(std::optional<std::string_view> in_recovery);
  void create_table(const CallOptions& call_options);
  /// The clock, which is the first column of a row.
  microseconds clock_in(const PostgresResult& row) const;
  /// A snapshot from a row of clock, standby, pid, living pids, version and body.
  Snapshot snapshot_from(const PostgresResult& row, Deadline sent);
  void note_connection();
  /// Whether the connection receives messages.
  bool hears() const { return is_direct_ && !crowded_; }
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd);

  PostgresConnection connection_;
  int known_connection_ = 0;  ///< the connection that the next members describe
  bool is_direct_ = false;    ///< it leads to one server process, not to a pooler
  /// The server had few connections left when this one was opened. A waiter then keeps none while
  /// it sleeps, because holders need them to renew.
  bool crowded_ = false;
  std::string table_;               ///< its name in SQL syntax; empty: not known yet
  std::string reserved_;            ///< the record that an open transaction has locked
  const std::string channel_;       ///< of this client's messages
  std::set<std::string> channels_;  ///< the channels that it listens on
};

}  // namespace dlock
