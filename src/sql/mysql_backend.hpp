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

/// What an administrator runs where dlock's user may not create tables.
std::string_view mysql_schema();

/// Records in the table `dlock` of a MySQL or MariaDB database. Every statement commits by itself.
/// Listening to a channel means to have the lock of that name that GET_LOCK gives: it ends with the
/// connection, so that others see whether the client lives, and can wait for its end.
class MysqlBackend final : public CasBackend {
 public:
  /// `shown`: the URL for people.
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
  /// A statement has it in hexadecimal digits, and the library sends 4 MiB at most.
  std::size_t largest_record() const override { return 2'000'000; }
  void close() override;
  std::string name() const override { return connection_.name(); }

 private:
  /// The results of `statements`; makes the table if there is none.
  std::vector<MysqlResult> run(const std::string& statements, const CallOptions& call_options);
  /// The same, if none may fail.
  std::vector<MysqlResult> done(const std::string& statements, const CallOptions& call_options);
  /// Throws what a failed result means.
  [[noreturn]] void refuse(const MysqlResult& failed);
  void create_table(const CallOptions& call_options);
  /// A snapshot without a record, by the columns that tell of the server.
  Snapshot state_from(const MysqlResult::Row& place, Deadline sent);
  /// Reads a record, and who listens to the channels that it named last.
  std::string select_known(const std::string& name);
  /// What that has answered as the last of `results`.
  Snapshot snapshot_from(const std::vector<MysqlResult>& results, Deadline sent,
                         const CallOptions& call_options);
  std::optional<std::set<std::string>> listeners(const std::set<std::string>& channels,
                                                 const CallOptions& call_options);
  void note_connection();
  std::string let_go() const;
  void listen(const std::string& channel, const CallOptions& call_options);

  MysqlConnection connection_;
  int known_connection_ = 0;              ///< what follows is of this one
  std::map<std::string, bool> channels_;  ///< asked for; whether it has the lock of that name
  bool crowded_ = false;                  ///< as is_crowded()
  std::string known_record_;              ///< that was read last
  std::set<std::string> known_channels_;  ///< that it named
  /// Waits for the lock of another client's channel. A connection of its own: the server sees at
  /// once that a client has died only if its connection waits for nothing.
  MysqlConnection watch_;
  std::string watched_;  ///< what it waits for
};

}  // namespace dlock
