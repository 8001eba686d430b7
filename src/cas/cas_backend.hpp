#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "lock/grant.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Names one state of a record; two states of one name never share a version. 0: no such record.
using Version = std::int64_t;

/// The clients, or the entries of a record, that the engine knows to be alive. Each has an id.
struct Lives {
  enum class Of {
    connections,  ///< of clients: a waiter leaves the queue with its connection
    sessions,     ///< of clients: a live session also keeps its hold from expiring
    entries,      ///< an entry lasts as long as its life, whatever the clock says
  };
  Of of = Of::connections;
  std::map<std::string, std::int64_t> ids{};  ///< each with its lease; 0: no lease
  bool contains(const std::string& id) const { return ids.contains(id); }
};

/// A record as it was read, and the time of the read by the engine's clock and by ours.
struct Snapshot {
  std::string text{};
  Version version = 0;
  microseconds clock{0};  ///< of the engine, in the request that read the record
  /// The engine's clock may have been ahead of `clock` by this much: it shows whole seconds, or its
  /// servers differ. Every lease in the record is longer than its holder counts on by this much.
  milliseconds clock_unsure{0};
  Deadline sent{};               ///< before that request went out
  std::optional<Lives> lives{};  ///< nothing: the engine cannot tell
  /// The engine's count of writes, from which fences are made; 0 if it does not count them.
  std::int64_t revision = 0;
};

/// A lease of an engine with CasLeases: the lives that are attached to it end with it.
struct EngineLease {
  std::int64_t id = 0;     ///< 0: not granted yet, or expired
  milliseconds asked{0};   ///< 0: not known, because another client asked for it
  milliseconds length{0};  ///< as granted: at least as long as asked for
  Deadline sent{};         ///< before the request that granted it or last renewed it
};

/// The signs by which other clients see that a client with an entry in a record is alive.
struct OwnLife {
  bool waits = false;  ///< the client is about to sleep in the queue, and needs messages
  /// Written into the entry: where messages reach the client, and after the last dot the id of its
  /// life. Empty: others cannot see whether the client is alive.
  std::string address{};
  EngineLease lease{};  ///< of an engine with CasLeases
};

/// A message to a waiter, or to all that watch the record.
struct Wakeup {
  std::string to;  ///< a waiter's address; with Lives::Of::entries, its life; empty: all
  std::string message;
};

/// The new content of a record.
struct Update {
  std::string text;
  microseconds ends{0};           ///< by the engine's clock: the record may be swept after this
  std::vector<Wakeup> wakeups{};  ///< sent if and only if the write succeeds
  /// The lives that the text names for the first time, each with its lease. The write fails if one
  /// of them is a connection or session of this client that has ended.
  std::map<std::string, std::int64_t> begun{};
  /// The lives that end with the write. Their watchers wake.
  std::vector<std::string> ended{};
  /// With CasLeases, the record gets a lease of this length; nothing: its lease stays as it is.
  std::optional<milliseconds> lasts{};
};

struct NamedRecord {
  std::string name;
  Snapshot seen;
};

/// Records in the order of their names.
struct RecordPage {
  std::vector<NamedRecord> records;
  bool last = true;  ///< no more follow
};

/// The events for which a sleeping client waits.
struct RecordWatch {
  struct Other {
    std::string life;       ///< the other's address, or, with Lives::Of::entries, its life
    bool only_end = false;  ///< wake when it ends, but not for a message to it
    bool operator==(const Other&) const = default;
  };
  std::string record;
  std::string own{};            ///< where the client gets messages; empty: it watches the record
  std::vector<Other> others{};  ///< lives whose end or message wakes the client
  std::int64_t after = 0;       ///< the revision of the last read, or of a later wake-up
  /// When watch() returns so that the client reads the record: `poll` is for a client that gets no
  /// messages, `look` for one that only watches the end of another life.
  Deadline poll{};
  Deadline look = never;
};

/// The interface of an engine that has leases instead of a clock.
class CasLeases {
 public:
  virtual ~CasLeases() = default;

  /// Grants a new lease, at least as long as `asked`.
  virtual EngineLease grant(milliseconds asked, const CallOptions& call_options) = 0;

  /// Renews the lease; sets its id to 0 if it has expired.
  virtual void renew(EngineLease& lease, const CallOptions& call_options) = 0;

  /// Ends leases and everything that is attached to them.
  virtual void revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) = 0;

  /// The length of a lease and its remaining time; 0: the lease has expired.
  struct Left {
    milliseconds length{0};
    milliseconds left{0};
  };
  virtual std::vector<Left> left_of(const std::vector<std::int64_t>& leases,
                                    const CallOptions& call_options) = 0;
};

/// An engine that stores named records and replaces one only if its version has not changed. One
/// thread uses it at a time. Every failure is an Error; after Error{unavailable} from write() the
/// write may have been done, or may still be done.
class CasBackend {
 public:
  virtual ~CasBackend() = default;

  /// Reads a record. If the engine can show it, others see `own` alive from before the read on: the
  /// call sets the address of `own`, or renews its lease. If the lease has no id but a known
  /// length, the call asks the engine to grant it.
  virtual Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) = 0;

  /// Reads a record for a waiter that may hold the lock by now, if looks_without_lives() without
  /// the lives, which would take another request.
  virtual Snapshot look(const std::string& name, const CallOptions& call_options) {
    return read(name, nullptr, call_options);
  }
  virtual bool looks_without_lives() const { return false; }

  /// The longest time that a waiter may sleep without a request.
  virtual milliseconds longest_sleep() const { return Refusal{}.longest_sleep; }

  /// Replaces the version in `over`. Returns the new version, or, if the record had changed, the
  /// record as it was after the attempt.
  virtual std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                                const Update& update,
                                                const CallOptions& call_options) = 0;

  /// Returns records whose names begin with `prefix` and come after `after`, a few hundred at most.
  virtual RecordPage list(const std::string& prefix, const std::string& after,
                          const CallOptions& call_options) = 0;

  /// The number of records whose names begin with `prefix`.
  virtual std::int64_t count(const std::string& prefix, const CallOptions& call_options) = 0;

  /// Removes some expired records with names that begin with `prefix` and come after `after`.
  virtual void sweep(const std::string& prefix, const std::string& after,
                     const CallOptions& call_options) = 0;

  /// Returns the next message, `changed` if the record or a watched life has changed, `due` at the
  /// time for a read or at `until`, or `interrupted`. Throws Error{unavailable} if messages no
  /// longer reach the client.
  virtual std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                        int cancel_fd) = 0;

  /// Whether a holder keeps its connection between renewals; `awaited`: others wait for its lock.
  virtual bool stays_connected(bool awaited) const {
    (void)awaited;
    return false;
  }

  /// The engine's clock in its last answer; nothing: only a read shows it. If every answer shows
  /// the clock, a holder renews by one write.
  virtual std::optional<DatedAnswer> last_clock() const { return std::nullopt; }

  /// The leases of the engine; null if it has a clock instead.
  virtual CasLeases* leases() { return nullptr; }

  /// The largest size of an Update's text, in bytes, that the engine accepts.
  virtual std::size_t largest_record() const { return SIZE_MAX; }

  /// Closes the connection; the next request opens another.
  virtual void close() = 0;

  /// The name of the engine for messages, without credentials.
  virtual std::string name() const = 0;

 protected:
  /// An empty snapshot with the times of the last answer, if last_clock() tells them.
  Snapshot dated(milliseconds clock_unsure) const {
    const auto last = last_clock().value();
    return {.clock = last.clock, .clock_unsure = clock_unsure, .sent = last.sent};
  }
  /// The watch() of a client that gets no messages.
  static Wake::Reason await_poll(const RecordWatch& watch, Deadline until, int cancel_fd) {
    const bool interrupted = sleep_until(std::min(until, watch.poll), cancel_fd);
    return interrupted ? Wake::Reason::interrupted : Wake::Reason::due;
  }
};

}  // namespace dlock
