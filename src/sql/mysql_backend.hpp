#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "sql/mysql_connection.hpp"

namespace dlock {

/// The statement that an administrator runs if dlock's user may not create tables.
std::string_view mysql_schema();

/// Records in the table `dlock` of a MySQL or MariaDB database. Every statement commits by itself.
/// A client listens to a channel by holding the lock of that name (GET_LOCK). The lock ends with
/// the connection, so that others see whether the client lives, and can wait for its end.
class MysqlBackend final : public CasBackend {
 public:
  /// `shown`: the URL for users.
  MysqlBackend(MysqlAddress address, const std::string& shown)
      : connection_(address, shown), watch_(std::move(address), shown) {}

  Snapshot read(const std::string& name, const std::string& channel,
                const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  std::string connection_id() const override;
  bool hears_messages() const override { return false; }
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  bool has_departures() const override { return true; }
  std::optional<Wake::Reason> await_departure(const Watched& watched, Deadline until,
                                              int cancel_fd) override;
  bool is_crowded() const override { return crowded_; }
  /// A statement contains the record in hexadecimal digits, and the library sends at most 4 MiB.
  std::size_t largest_record() const override { return 2'000'000; }
  void close() override;
  std::string name() const override { return connection_.name(); }

 private:
  /// Returns the results of `statements`; creates the table if it does not exist.
  std::vector<MysqlResult> run(const std::string& statements, const CallOptions& call_options);
  /// Like run(), but throws if a statement failed.
  std::vector<MysqlResult> done(const std::string& statements, const CallOptions& call_options);
  /// Throws the error for a failed result.
  [[noreturn]] void refuse(const MysqlResult& failed);
  void create_table(const CallOptions& call_options);
  /// A snapshot without a record, from the columns with the server's state.
  Snapshot state_from(const MysqlResult::Row& place, Deadline sent);
  /// Reads a record, and the listeners of the channels that it contained last.
  std::string select_known(const std::string& name);
  /// The answer to select_known(), which is at the end of `results`.
  Snapshot snapshot_from(const std::vector<MysqlResult>& results, Deadline sent,
                         const CallOptions& call_options);
  std::optional<std::set<std::string>> listeners(const std::set<std::string>& channels,
                                                 const CallOptions& call_options);
  void note_connection();
  std::string let_go() const;
  void listen(const std::string& channel, const CallOptions& call_options);

  MysqlConnection connection_;
  int known_connection_ = 0;              ///< the connection that the next members describe
  std::map<std::string, bool> channels_;  ///< requested channels, and whether we hold their lock
  bool crowded_ = false;
  std::string known_record_;              ///< the record that was read last
  std::set<std::string> known_channels_;  ///< the channels in that record
  /// Waits for the lock of another client's channel. It is a separate connection, because the
  /// server notices the death of a client at once only if its connection waits for nothing.
  MysqlConnection watch_;
  std::string watched_;  ///< the lock for which watch_ waits
};

}  // namespace dlock
