#pragma once

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
/// A client has a channel while it holds the lock of that name (GET_LOCK). The lock ends with the
/// connection, so that others see whether the client lives, and can wait for its end.
class MysqlBackend final : public CasBackend {
 public:
  /// `shown`: the URL for users.
  MysqlBackend(MysqlAddress address, const std::string& shown)
      : connection_(address, shown), watching_(std::move(address), shown) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  /// Without messages, the client waits for the end of another one, or polls.
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  bool stays_connected(bool awaited) const override { return awaited && !crowded_; }
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
  std::optional<Lives> listeners(const std::set<std::string>& channels,
                                 const CallOptions& call_options);
  Snapshot read_known(const std::string& name, const CallOptions& call_options);
  void note_connection();
  void take_channel(const CallOptions& call_options);
  Wake::Reason await_end_of(const std::string& channel, Deadline until, int cancel_fd);

  MysqlConnection connection_;
  int known_connection_ = 0;  ///< the connection that the next members describe
  std::string channel_;       ///< empty: none was asked for yet, or the client has departed
  bool has_channel_ = false;  ///< the connection holds its lock
  /// The server had few connections left when the channel was asked for. A waiter then keeps none
  /// while it sleeps, because holders need them to renew.
  bool crowded_ = false;
  std::string known_record_;              ///< the record that was read last
  std::set<std::string> known_channels_;  ///< the channels in that record
  /// Waits for the lock of another client's channel. It is a separate connection, because the
  /// server notices the death of a client at once only if its connection waits for nothing.
  MysqlConnection watching_;
  std::string watched_;  ///< the channel for which watching_ waits
  std::string in_vain_;  ///< the client of this channel seemed to depart, but has not
};

}  // namespace dlock
