#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.hpp"
#include "base/endpoint.hpp"
#include "base/wait.hpp"
#include "cas/cas_backend.hpp"
#include "net/stream.hpp"

namespace dlock {

/// The most by which the clock of a memcached is ahead of the `time` that it reports.
constexpr milliseconds memcached_clock_unsure{2000};

/// A connection to a memcached, in plain text. One thread uses it at a time. A failure is an Error
/// that names the server, and closes the connection.
class MemcachedClient {
 public:
  using Stats = std::map<std::string, std::string>;
  /// The answers to a write, if there was one, to a read of the same key and to `stats`.
  struct Answer {
    std::string written{};  ///< `HD`: done; `NS`, `EX`, `NF`: another client was faster
    std::optional<std::string> value{};
    std::string cas{};  ///< of `value`: one number for each write, since the server has started
    microseconds clock{0};
  };

  /// `shown` names the server in messages.
  MemcachedClient(Endpoint server, std::string shown);

  /// Connects, unless the connection is open.
  void connect(const CallOptions& call_options);
  /// Increases with each connection. The requests below need an open one.
  std::int64_t connection() const { return connection_; }
  void close();

  /// Sends `write`, which may be empty, and the read of `key` together.
  Answer ask(const std::string& write, const std::string& key, const CallOptions& call_options);
  /// `group` is empty or, for example, `settings`.
  Stats stats(const std::string& group, const CallOptions& call_options);

 private:
  void exchange(const std::string& requests, const CallOptions& call_options,
                const std::function<void()>& take_answers);
  std::string take(std::size_t bytes, const CallOptions& call_options);
  std::string take_line(const CallOptions& call_options);
  void take_value(Answer& answer, const CallOptions& call_options);
  Stats take_stats(const CallOptions& call_options);

  const Endpoint server_;
  const std::string shown_;
  std::optional<Stream> stream_;
  std::int64_t connection_ = 0;
  std::string arrived_;  ///< not yet taken
};

/// Records in a memcached, by its meta commands, which 1.6 has. Each record is a value under a name
/// that is short and printable; the value has the whole name. memcached sends no messages, so
/// waiters poll, and it removes expired records by itself.
class MemcachedBackend final : public CasBackend {
 public:
  MemcachedBackend(Endpoint server, std::string shown);

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  /// Both throw Error{usage}: memcached cannot list its keys.
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string&, const std::string&, const CallOptions&) override {}
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  /// memcached takes values of a megabyte, unless its option -I says otherwise.
  std::size_t largest_record() const override { return 500'000; }
  void close() override { client_.close(); }
  std::string name() const override { return shown_; }

 private:
  /// The state of a record that this client has seen or written last.
  struct State {
    Version version = 0;
    std::string cas{};
    std::int64_t connection = 0;  ///< on which the cas was read
  };

  Snapshot snapshot_from(const std::string& name, const MemcachedClient::Answer& answer,
                         Deadline sent);

  const std::string shown_;
  MemcachedClient client_;
  std::map<std::string, State> states_;
};

}  // namespace dlock
