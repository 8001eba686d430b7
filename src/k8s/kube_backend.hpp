#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "cas/cas_backend.hpp"
#include "k8s/kube_client.hpp"

namespace dlock {

/// Stores each record in an annotation of a Lease (coordination.k8s.io/v1), and replaces it if the
/// Lease still has the resourceVersion of the read. The Lease's own fields show the first holder to
/// people and other tools; dlock does not read them. Waiters watch the Lease.
class KubeBackend final : public CasBackend {
 public:
  /// `name_space`: empty for that of the pod or the context. The names of all records begin with
  /// `prefix`. `shown` is the URL for people.
  KubeBackend(const std::string& context, std::string name_space, std::string prefix,
              std::string shown)
      : client_(context, std::move(shown)),
        name_space_(std::move(name_space)),
        prefix_(std::move(prefix)) {}

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  /// Returns the record in the event that woke the waiter, without a request.
  Snapshot look(const std::string& name, const CallOptions& call_options) override;
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
  std::optional<DatedAnswer> last_clock() const override { return client_.last_clock(); }
  /// The watch tells all. Only a sign of life is due, before others drop a waiter after 180 s.
  milliseconds longest_sleep() const override { return milliseconds(150'000); }
  /// All annotations of an object have 256 KiB.
  std::size_t largest_record() const override { return 200'000; }
  void close() override;
  std::string name() const override { return client_.name(); }

 private:
  /// A Lease as it was last seen.
  struct Seen {
    Version version = 0;
    std::string uid{};  ///< of the last one of this name, if it has gone
  };

  std::string path_of(const std::string& name_of_lease, const CallOptions& call_options);
  std::string lease_name(const std::string& record) const;
  /// Notes the version of a Lease, and returns it.
  Version note(const std::string& name, const nlohmann::json& lease);
  /// The record in a Lease. Throws Error{wrong_data} if the Lease has none.
  Snapshot snapshot_from(const nlohmann::json& lease) const;
  nlohmann::json lease_with(const std::string& name, const Snapshot& over,
                            const Update& update) const;
  /// Calls `take` with each Lease of dlock that matches `selector`, up to `pages` of them.
  template <typename Take>
  void for_each(const std::string& selector, int pages, const CallOptions& call_options,
                const Take& take);
  void open_watch(const std::string& name, Deadline until, int cancel_fd);
  /// Returns whether the line tells of a newer state of the record, or ends the stream.
  bool take_event(const std::string& line);

  KubeClient client_;
  std::string name_space_;
  const std::string prefix_;
  std::map<std::string, Seen> seen_;  ///< by the name of the record
  std::string watched_;               ///< the record of the open stream
  Deadline stream_opened_{};
  std::optional<Snapshot> event_;  ///< of that record, received and not looked at yet
};

}  // namespace dlock
