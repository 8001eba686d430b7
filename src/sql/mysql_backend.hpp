#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cas/cas_backend.hpp"
#include "sql/mysql_connection.hpp"

namespace dlock {

/// What an administrator runs where dlock's user may not create tables.
std::string_view mysql_schema();

/// Records in the table `dlock` of a MySQL or MariaDB database. Every statement commits by itself.
class MysqlBackend final : public CasBackend {
 public:
  /// `shown`: the URL for people.
  MysqlBackend(MysqlAddress address, const std::string& shown)
      : connection_(std::move(address), shown) {}

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
  void close() override { connection_.close(); }
  std::string name() const override { return connection_.name(); }

 private:
  /// The results of `statements`; makes the table if there is none.
  std::vector<MysqlResult> run(const std::string& statements, const CallOptions& call_options);
  /// The same, if none may fail.
  std::vector<MysqlResult> done(const std::string& statements, const CallOptions& call_options);
  /// Throws what a failed result means.
  [[noreturn]] void refuse(const MysqlResult& failed) const;
  void create_table(const CallOptions& call_options);
  /// A snapshot without a record from a result of clock, state and living connections.
  Snapshot server_state(const MysqlResult& result, Deadline sent);
  /// The same with the record in its first row.
  Snapshot snapshot_from(const MysqlResult& result, Deadline sent);
  void note_connection();
  void listen(const std::string& channel, const CallOptions& call_options);

  MysqlConnection connection_;
  int known_connection_ = 0;              ///< what follows is of this one
  std::map<std::string, bool> channels_;  ///< asked for; whether it has the lock of that name
};

}  // namespace dlock
