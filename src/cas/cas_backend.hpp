#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Names one state of a record; two states of one name never share a version. 0: no such record.
using Version = std::int64_t;

/// A record as it was read, and the time of the read by the engine's clock and by ours.
struct Snapshot {
  std::string text;
  Version version = 0;
  microseconds clock{0};  ///< of the engine, in the request that read the record
  Deadline sent{};        ///< before that request went out
  int connection = 0;     ///< which of the backend's connections it came on, counted from 1
  /// The open connections, by connection_id(); nothing if the engine cannot tell.
  std::optional<std::set<std::string>> alive{};
  /// The lives of the record's entries by name, each with its lease; nothing without CasLeases.
  std::optional<std::map<std::string, std::int64_t>> lives{};
  /// The engine's count of writes, from which fences are made; 0 if it does not count them.
  std::int64_t revision = 0;
  /// Connections of holders: a hold that names one of them lasts, whatever the clock says. Our own
  /// connection is left out, because its client knows whether it holds.
  std::set<std::string> holding{};
  /// No other client writes the record before the next write() over this snapshot, or abandon().
  bool reserved = false;
};

/// A lease of an engine with CasLeases: the lives that are attached to it end with it.
struct PlaceLease {
  std::int64_t id = 0;     ///< 0: not granted yet, or expired
  milliseconds asked{0};   ///< 0: not known, because another client asked for it
  milliseconds length{0};  ///< as granted: at least as long as asked for
  Deadline sent{};         ///< before the request that granted it or last renewed it
};

/// A message to the clients that listen to a channel.
struct Wakeup {
  std::string channel;
  std::string message;
  std::string connection{};  ///< of the listening client, by connection_id()
};

/// The new content of a record.
struct Update {
  std::string text;
  microseconds ends{0};           ///< by the engine's clock: the record may be swept after this
  std::vector<Wakeup> wakeups{};  ///< sent if and only if the write succeeds
  /// The text names the connection of the snapshot, so the write fails on any other connection.
  bool names_connection = false;
  /// The client gives up its hold or its position in the queue. If the write succeeds, the
  /// connection stops listening to its channels, and await_departure() ends.
  bool departs = false;
  /// There are no holders and no waiters, and this was the last fence. An engine whose revisions
  /// are larger need not keep the record.
  std::optional<Fence> vacant_after{};
  // The rest is for an engine with CasLeases. There a wakeup's channel is the life of a waiter.
  std::map<std::string, std::int64_t> begun_lives{};  ///< each with its lease
  std::vector<std::string> ended_lives{};
  /// The record gets a lease of its own with this length; nothing: its lease stays as it is.
  std::optional<milliseconds> lasts{};
};

/// The client whose departure another client waits for.
struct Watched {
  std::string channel{};  ///< the channel that it listens to
  /// The caller is the second watcher. The first may be stopped, so neither may block the other.
  bool as_second = false;
};

struct NamedRecord {
  std::string name;
  std::string text;
  std::optional<microseconds> clock{};  ///< the record's own clock, if it ends with a lease
  /// Lives as in Snapshot, but of this record: a token that asks for several keys has a life of the
  /// same name beside each record.
  std::map<std::string, std::int64_t> lives{};
};

/// Records in the order of their names, and the Snapshot members that they share.
struct RecordPage {
  std::vector<NamedRecord> records;
  Snapshot read{};
  bool last = true;  ///< no more follow
};

/// The lives to watch while a waiter sleeps.
struct WatchedLives {
  struct Other {
    std::string life;
    bool only_end = true;  ///< wake when it ends, but not for a message to it
  };
  std::string name;  ///< of the record
  std::string own;   ///< the waiter's life, which gets the messages
  std::vector<Other> others{};
  std::int64_t after = 0;  ///< watch from this revision on
};

/// The interface of an engine that has leases instead of a clock. An entry of a record is valid
/// while its life exists: a name beside the record that is attached to a lease. No time that a
/// client wrote counts.
class CasLeases {
 public:
  virtual ~CasLeases() = default;

  /// Grants a new lease, at least as long as `asked`.
  virtual PlaceLease grant(milliseconds asked, const CallOptions& call_options) = 0;

  /// Renews the lease; sets its id to 0 if it has expired.
  virtual void renew(PlaceLease& lease, const CallOptions& call_options) = 0;

  /// Grants `lease`, or renews it if it is granted already, and reads the record, both at once.
  virtual Snapshot read_with(PlaceLease& lease, const std::string& name,
                             const CallOptions& call_options) = 0;

  /// Ends leases and everything that is attached to them.
  virtual void revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) = 0;

  /// The length of a lease and the time left of it; 0: it has expired.
  struct Left {
    milliseconds length{0};
    milliseconds left{0};
  };
  virtual std::vector<Left> left_of(const std::vector<std::int64_t>& leases,
                                    const CallOptions& call_options) = 0;

  /// Returns the next message to the own life; `changed` if the own life or one of the others has
  /// ended or has got a message; or `due` or `interrupted`.
  virtual std::variant<std::string, Wake::Reason> next_event(const WatchedLives& watched,
                                                             Deadline until, int cancel_fd) = 0;
};

/// An engine that stores named records and replaces one only if its version has not changed. One
/// thread uses it at a time. Every failure is an Error; after Error{unavailable} from write() the
/// write may have been done, or may still be done.
class CasBackend {
 public:
  virtual ~CasBackend() = default;

  /// Reads a record. With a `channel`, the connection listens to it from before the read.
  virtual Snapshot read(const std::string& name, const std::string& channel,
                        const CallOptions& call_options) = 0;

  /// Replaces the version in `over`. Returns the new version, or, if the record had changed, the
  /// record as it was after the attempt.
  virtual std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                                const Update& update,
                                                const CallOptions& call_options) = 0;

  /// For a client that lost a race: reads the record as soon as no other client can write it before
  /// our write. The reservation lasts a second at most, so that a client that hangs does not block
  /// others. Returns nothing if the engine has no reservations.
  virtual std::optional<Snapshot> reserve(const std::string& name,
                                          const CallOptions& call_options) {
    (void)name, (void)call_options;
    return std::nullopt;
  }
  virtual void abandon() {}

  /// Returns records whose names begin with `prefix` and come after `after`, some hundred at most.
  virtual RecordPage list(const std::string& prefix, const std::string& after,
                          const CallOptions& call_options) = 0;

  /// The number of records whose names begin with `prefix`.
  virtual std::int64_t count(const std::string& prefix, const CallOptions& call_options) = 0;

  /// Removes some expired records with names that begin with `prefix` and come after `after`.
  virtual void sweep(const std::string& prefix, const std::string& after,
                     const CallOptions& call_options) = 0;

  /// The name of the connection in Snapshot::alive. Empty: others cannot see whether it is open.
  virtual std::string connection_id() const = 0;

  /// Whether the connection receives messages; otherwise the client polls.
  virtual bool hears_messages() const { return !connection_id().empty(); }

  /// Returns the next message on `channel`, or `due` or `interrupted`. Throws Error{unavailable} if
  /// the connection no longer listens to the channel.
  virtual std::variant<std::string, Wake::Reason> next_message(const std::string& channel,
                                                               Deadline until, int cancel_fd) = 0;

  /// Whether clients use await_departure() here; then holders stay connected for their waiters.
  virtual bool has_departures() const { return false; }

  /// Whether Snapshot::holding is used; then holders keep their connections.
  virtual bool keeps_holds() const { return false; }

  /// For a client that receives no messages: waits until the watched client has departed or its
  /// connection has closed (`changed`), until `until` (`due`), or until `interrupted`. Returns
  /// nothing if the engine cannot wait for that.
  virtual std::optional<Wake::Reason> await_departure(const Watched& watched, Deadline until,
                                                      int cancel_fd) {
    (void)watched, (void)until, (void)cancel_fd;
    return std::nullopt;
  }

  /// Whether the server had few connections left when this one began to listen. A client then keeps
  /// none while it sleeps, because holders need them to renew.
  virtual bool is_crowded() const { return false; }

  /// Null if the engine has a clock.
  virtual CasLeases* leases() { return nullptr; }

  /// The largest size of an Update's text, in bytes, that the engine accepts.
  virtual std::size_t largest_record() const { return SIZE_MAX; }

  /// Closes the connection; the next request opens another.
  virtual void close() = 0;

  /// The name of the engine for messages, without credentials.
  virtual std::string name() const = 0;
};

}  // namespace dlock
