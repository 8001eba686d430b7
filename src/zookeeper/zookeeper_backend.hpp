#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cas/cas_backend.hpp"
#include "zookeeper/zookeeper_client.hpp"

namespace dlock {

/// Stores records as ZooKeeper nodes below one directory. Multi-requests replace them after a check
/// of their version and their incarnation, because a node that is removed and created again starts
/// at version 0. Leases follow the leader's clock, which each read obtains by a write to one node.
/// A client that waits or holds has an ephemeral child of the record, into which others write
/// messages for it. A hold lasts as long as that child, even if the clock says otherwise.
class ZooKeeperBackend final : public CasBackend {
 public:
  /// Does not connect yet. Records are children of `chroot`/`prefix`; their names begin with
  /// `prefix`. `chroot` is empty or begins with a slash; `shown` is the URL for messages; `session`
  /// is how long sessions outlive their last request.
  ZooKeeperBackend(std::vector<Endpoint> servers, std::string shown, std::string chroot,
                   std::string prefix, milliseconds session);

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override;
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override;
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override;
  /// Returns the message in this client's child, or waits for a change of the record.
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  bool stays_connected(bool) const override { return true; }
  /// The servers accept at most 1 MB (jute.maxbuffer); this leaves room for the rest of a request.
  std::size_t largest_record() const override { return 1'000'000; }
  void close() override { client_.close(); }
  milliseconds granted_session() const { return client_.granted_session(); }
  std::string name() const override { return client_.name(); }

 private:
  /// The node state that a Version stands for.
  struct State {
    Version version = 0;
    std::string incarnation;
    std::int32_t node_version = 0;
    bool has_own_child = false;
  };
  /// A node and its children, read by two requests.
  struct Node;

  std::string path_of(const std::string& name) const;
  std::string child_of(const std::string& name, const std::string& session) const;
  /// Lists the records below `prefix` and after `after`, in their order.
  std::vector<std::string> names(const std::string& prefix, const std::string& after,
                                 const CallOptions& call_options);
  std::vector<Node> nodes(const std::vector<std::string>& names, Snapshot& read,
                          const CallOptions& call_options);
  void make_directory(const CallOptions& call_options);
  Snapshot snapshot_from(const std::string& name, const Node& node, Snapshot seen);
  std::optional<std::vector<ZooKeeperChange>> changes_for(const std::string& name,
                                                          const Snapshot& over,
                                                          const Update& update, State& next) const;
  void add_child_changes(const std::string& name, const Snapshot& over, const Update& update,
                         State& next, std::vector<ZooKeeperChange>& changes) const;

  ZooKeeperClient client_;
  const std::string chroot_;
  const std::string prefix_;
  const std::string directory_;
  std::map<std::string, State> states_;  ///< of records, as last read or written
  Version last_version_ = 0;
};

}  // namespace dlock
