#pragma once

#include <deque>
#include <optional>
#include <string>
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
  EtcdBackend(const std::vector<Endpoint>& servers, std::string shown)
      : client_(servers, std::move(shown)) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  bool stays_connected(bool) const override { return true; }
  CasLeases* leases() override { return this; }
  /// etcd accepts requests of at most 1.5 MiB; a write also has the lives of holders and waiters.
  std::size_t largest_record() const override { return 200'000; }
  void close() override;
  std::string name() const override { return client_.name(); }

  EngineLease grant(milliseconds asked, const CallOptions& call_options) override;
  void renew(EngineLease& lease, const CallOptions& call_options) override;
  void revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) override;
  std::vector<Left> left_of(const std::vector<std::int64_t>& leases,
                            const CallOptions& call_options) override;

 private:
  using Keys = std::vector<RecordWatch::Other>;

  Snapshot snapshot_from(const std::string& name, std::int64_t revision, const EtcdRange& range,
                         Deadline sent, const CallOptions& call_options);
  /// The present time of the clock by which a record expires at `ends`, from what is left of the
  /// record's `lease`.
  microseconds clock_of(microseconds ends, std::int64_t lease, const CallOptions& call_options);
  std::vector<nlohmann::json> operations(const std::string& name, const Snapshot& over,
                                         const Update& update, const CallOptions& call_options);
  void take_grant(EngineLease& lease, const EtcdAnswer& answer) const;
  void take_lease(EngineLease& lease, const EtcdAnswer& answer) const;
  /// Returns at most `most` keys under `prefix` that come after `after`.
  nlohmann::json page(const std::string& prefix, const std::string& after, int most,
                      const CallOptions& call_options);
  /// Returns the next event of `keys` after the revision `after`; opens a stream unless one for
  /// these keys is open.
  std::variant<EtcdEvent, Wake::Reason> next_change(const Keys& keys, std::int64_t after,
                                                    Deadline until, int cancel_fd);
  std::optional<std::string> message_beside(const Keys& keys, std::int64_t after, Deadline end,
                                            int cancel_fd);
  void open_watch(const Keys& keys, std::int64_t after);
  /// Takes a line of the stream. Returns false if etcd has ended the watch, for example because its
  /// start revision is compacted.
  bool take_line(const std::string& line);

  EtcdClient client_;
  Keys watched_;  ///< the keys of the open stream
  bool watch_answered_ = false;
  std::deque<EtcdEvent> events_;  ///< received, not yet returned
};

}  // namespace dlock
