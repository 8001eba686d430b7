#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cas/cas_backend.hpp"
#include "etcd/etcd_client.hpp"
#include "etcd/etcd_json.hpp"

namespace dlock {

/// Stores records as keys of etcd and replaces them by transactions that compare their revision.
/// The lives of entries are keys beside the record, attached to etcd's leases. A message to a
/// client is written into the value of its life, which the client watches.
class EtcdBackend final : public CasBackend, public CasLeases {
 public:
  /// Does not connect yet. `shown` is the URL of the servers for people.
  EtcdBackend(std::vector<Endpoint> servers, std::string shown)
      : client_(std::move(servers), std::move(shown)) {}

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
  std::string connection_id() const override { return {}; }
  bool hears_messages() const override { return true; }
  /// The message on a channel that was passed to read() only says that the record has changed.
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  CasLeases* leases() override { return this; }
  /// A request of etcd has at most 1.5 MiB; the rest is for the lives of holders and waiters.
  std::size_t largest_record() const override { return 200'000; }
  void close() override;
  std::string name() const override { return client_.name(); }

  PlaceLease grant(milliseconds asked, const CallOptions& call_options) override;
  void renew(PlaceLease& lease, const CallOptions& call_options) override;
  Snapshot read_with(PlaceLease& lease, const std::string& name,
                     const CallOptions& call_options) override;
  void revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) override;
  std::vector<Left> left_of(const std::vector<std::int64_t>& leases,
                            const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> next_event(const WatchedLives& watched, Deadline until,
                                                     int cancel_fd) override;

 private:
  /// A key that the watch stream reports.
  struct WatchedKey {
    std::string key;
    bool only_end = false;
    bool operator==(const WatchedKey&) const = default;
  };

  Snapshot snapshot_from(const std::string& name, std::int64_t revision, const EtcdRange& range,
                         Deadline sent, const CallOptions& call_options);
  /// Cuts the end of the record's lease from the front of its value.
  microseconds take_end(const std::string& record, std::string& value) const;
  /// The time by the clock of a record that ends with a lease.
  microseconds clock_of(microseconds ends, std::int64_t lease, const CallOptions& call_options);
  std::vector<nlohmann::json> operations(const std::string& name, const Snapshot& over,
                                         const Update& update, const CallOptions& call_options);
  void take_grant(PlaceLease& lease, const EtcdAnswer& answer) const;
  void take_lease(PlaceLease& lease, const EtcdAnswer& answer) const;
  /// Returns at most `most` keys under `prefix` that come after `after`.
  nlohmann::json page(const std::string& prefix, const std::string& after, int most,
                      const CallOptions& call_options);
  /// Returns the next event of `keys` after the revision `after`; opens a stream unless one for
  /// these keys is open.
  std::variant<EtcdEvent, Wake::Reason> next_change(const std::vector<WatchedKey>& keys,
                                                    std::int64_t after, Deadline until,
                                                    int cancel_fd);
  std::optional<std::string> message_beside(const std::vector<WatchedKey>& keys, std::int64_t after,
                                            Deadline end, int cancel_fd);
  void open_watch(const std::vector<WatchedKey>& keys, std::int64_t after);
  /// Returns false if the watch was cancelled because its start revision is compacted.
  bool take_line(const std::string& line);

  EtcdClient client_;
  std::vector<WatchedKey> watched_;  ///< the keys of the open stream
  bool watch_answered_ = false;
  std::deque<EtcdEvent> events_;  ///< received, not yet returned
  /// The record of a channel that was passed to read(), and its last known revision.
  struct Listened {
    std::string name;
    std::int64_t after = 0;
  };
  std::map<std::string, Listened> channels_;
};

}  // namespace dlock
