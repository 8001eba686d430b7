#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "sql/postgres_connection.hpp"

namespace dlock {

/// The statement that an administrator runs once where dlock may not create its table; `table` is
/// the name as SQL writes it.
std::string postgres_schema(const std::string& table = "public.dlock");

/// The front of a statement, with all tables of locks in the database as `ours` (oid, name, chosen
/// by the user), and as `target` the schema in which one is made: `schema`, or `public`.
std::string with_tables(const std::string& schema);

/// Records as rows of the one table `dlock` in a PostgreSQL database, in whatever schema it is:
/// search_path would find another table for each role. One message is one
/// request, and no session needs to last from one to the next, so that it works through poolers.
/// Messages to clients go by NOTIFY, in the transaction of the write; behind a pooler there are
/// none. Only a client that lost a race, and not behind a pooler, keeps the row until its write.
class PostgresBackend final : public CasBackend {
 public:
  explicit PostgresBackend(PostgresTerms terms) : connection_(std::move(terms)) {}

  Snapshot read(const std::string& name, const std::string& channel,
                const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  std::optional<Snapshot> reserve(const std::string& name,
                                  const CallOptions& call_options) override;
  void abandon() override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  std::string connection_id() const override;
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  bool is_crowded() const override { return crowded_; }
  void close() override { connection_.close(); }
  std::string name() const override { return connection_.name(); }

 private:
  /// Whether the connection reaches one process of the server, as far as is known.
  enum class Path { unknown, direct, pooled };

  /// The table, which it looks for once a connection and makes if there is none.
  const std::string& table(const CallOptions& call_options);
  /// The results of `statements`.
  std::vector<PostgresResult> run(const std::string& statements, const CallOptions& call_options);
  /// The same, at least one, if none may fail.
  std::vector<PostgresResult> done(const std::string& statements, const CallOptions& call_options);
  /// Throws what a failed result means.
  [[noreturn]] void refuse(const PostgresResult& failed);
  void find_table(const CallOptions& call_options);
  void refuse_standby(std::optional<std::string_view> in_recovery);
  void create_table(const CallOptions& call_options);
  /// The clock, which is the first column of a row.
  microseconds clock_in(const PostgresResult& row) const;
  /// A snapshot from a row of clock, standby, pid, living pids, version and body.
  Snapshot snapshot_from(const PostgresResult& row, Deadline sent);
  void note_connection();

  PostgresConnection connection_;
  int known_connection_ = 0;  ///< what follows is of this one
  Path path_ = Path::unknown;
  bool crowded_ = false;            ///< as is_crowded()
  std::string table_;               ///< its name as SQL has it; empty: not known yet
  std::set<std::string> channels_;  ///< it listens to these
};

}  // namespace dlock
