#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cas/cas_backend.hpp"
#include "etcd/etcd_client.hpp"
#include "etcd/etcd_json.hpp"

namespace dlock {

/// Records as keys of etcd, replaced by transactions that compare their revision, with the lives of
/// their entries as keys beside them that etcd's leases end. Messages to a client go into the value
/// of its life, which it watches.
class EtcdBackend final : public CasBackend, public CasLeases {
 public:
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
  /// On a channel that was named to read(): that the record was changed.
  std::variant<std::string, Wake::Reason> next_message(const std::string& channel, Deadline until,
                                                       int cancel_fd) override;
  CasLeases* leases() override { return this; }
  /// Of an answer of 2 MiB the rest is for the lives of those that hold or wait.
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
  /// A key that the stream tells of.
  struct WatchedKey {
    std::string key;
    bool only_end = false;
    bool operator==(const WatchedKey&) const = default;
  };
  struct Record;

  Snapshot snapshot_from(const std::string& name, std::int64_t revision, const EtcdRange& range,
                         Deadline sent, const CallOptions& call_options);
  Record record_in(const std::string& name, const EtcdEntry& entry) const;
  std::vector<nlohmann::json> operations(const std::string& name, const Snapshot& over,
                                         const Update& update, const CallOptions& call_options);
  void take_grant(PlaceLease& lease, const EtcdAnswer& answer) const;
  void take_lease(PlaceLease& lease, const EtcdAnswer& answer) const;
  /// Throws Error{unavailable} if it is none that a lease can have.
  milliseconds span_of(const EtcdAnswer& answer, const char* name) const;
  void write_more(const std::vector<nlohmann::json>& operations, const CallOptions& call_options);
  /// Of the keys under `prefix` those from `from` on, `at_once` of them or, where that would be too
  /// large an answer, fewer, which is noted there. The value of a key that is too large by itself
  /// is left out.
  nlohmann::json page_from(const std::string& from, const std::string& prefix, int& at_once,
                           const CallOptions& call_options);
  EtcdRange keys_in(const nlohmann::json& answer, const std::string& from) const;
  void complete_last(RecordPage& page, const CallOptions& call_options);
  /// The next event of `keys` after the revision `after`; opens the stream unless it tells of them
  /// already.
  std::variant<EtcdEvent, Wake::Reason> next_change(const std::vector<WatchedKey>& keys,
                                                    std::int64_t after, Deadline until,
                                                    int cancel_fd);
  std::optional<std::string> message_beside(const std::vector<WatchedKey>& keys, std::int64_t after,
                                            Deadline end, int cancel_fd);
  void open_watch(const std::vector<WatchedKey>& keys, std::int64_t after);
  /// False if the watch was cancelled, because what it asks for is compacted away.
  bool take_line(const std::string& line);

  EtcdClient client_;
  std::vector<WatchedKey> watched_;  ///< what the open stream tells of
  bool watch_answered_ = false;
  std::deque<EtcdEvent> events_;  ///< not asked for yet
  /// Of channels that were named to read(): the record, and its revision.
  struct Listened {
    std::string name;
    std::int64_t after = 0;
  };
  std::map<std::string, Listened> channels_;
  static constexpr int page_size = 500;
  int listed_at_once_ = page_size;  ///< keys: so many that their answer is not too large
};

}  // namespace dlock
