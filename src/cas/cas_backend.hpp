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

/// Names one state of a record; no two states of one name ever share it. 0: there is no record.
using Version = std::int64_t;

/// A record as it was read, and when: by the place's clock, and by ours.
struct Snapshot {
  std::string text;
  Version version = 0;
  microseconds clock{0};  ///< of the place, in the request that read the record
  Deadline sent{};        ///< before that request went out
  int connection = 0;     ///< which of the backend's connections it came on, counted from 1
  /// The connections that live, as connection_id() names them; nothing if the place cannot tell.
  std::optional<std::set<std::string>> alive{};
  /// Of a place with CasLeases: the lives of the record's entries, by name, with their leases.
  std::optional<std::map<std::string, std::int64_t>> lives{};
  /// Of a place that counts its changes: grows with every write to it. Fences go by it.
  std::int64_t revision = 0;
  /// A hold lasts as long as it names one of these connections, too, whatever the clock says. The
  /// own is not among them: its client knows itself whether it holds.
  std::set<std::string> holding{};
  /// Nobody else writes the record before the next write() over this, or abandon().
  bool reserved = false;
};

/// A lease of a place that has CasLeases: lives that are attached to it end with it.
struct PlaceLease {
  std::int64_t id = 0;     ///< 0: not granted yet, or over
  milliseconds asked{0};   ///< 0: not known, another client asked for it
  milliseconds length{0};  ///< as granted: at least what was asked for
  Deadline sent{};         ///< before the request that granted it or renewed it last
};

/// A message for the clients that listen to a channel.
struct Wakeup {
  std::string channel;
  std::string message;
  std::string connection{};  ///< of the client that listens, as connection_id() names it
};

/// The new content of a record, as a write brings it.
struct Update {
  std::string text;
  microseconds ends{0};  ///< by the place's clock: from then on the record may be swept away
  std::vector<Wakeup> wakeups{};  ///< sent if, and only if, the text counts
  /// The text names the connection of the snapshot: the write fails on any other.
  bool names_connection = false;
  /// The client gives up a hold or its place in the queue: if the text counts, the connection lets
  /// go of its channels, for those that await_departure().
  bool departs = false;
  /// Nobody holds or waits, and this was the last fence: a place whose revisions are beyond it need
  /// not remember the record.
  std::optional<Fence> vacant_after{};
  // The rest is for a place with CasLeases, where a wakeup's channel is the life of a waiter.
  std::map<std::string, std::int64_t> begun_lives{};  ///< they are attached to these leases
  std::vector<std::string> ended_lives{};
  /// The record ends with a lease of its own, so long from now; nothing: it ends as it did before.
  std::optional<milliseconds> lasts{};
};

/// A client that another one waits for to depart.
struct Watched {
  std::string channel{};  ///< that it listens to
  /// Another client watches it, too, and may be stopped: neither may hold up the other.
  bool as_second = false;
};

struct NamedRecord {
  std::string name;
  std::string text;
  std::optional<microseconds> clock{};  ///< of a record that ends with a lease: its own
  /// As Snapshot has them: a token that asks for several keys has a life of one name beside each.
  std::map<std::string, std::int64_t> lives{};
};

/// Records in the order of their names, and the rest of a Snapshot for all of them.
struct RecordPage {
  std::vector<NamedRecord> records;
  Snapshot read{};
  bool last = true;  ///< no more follow
};

/// What to watch while a waiter sleeps.
struct WatchedLives {
  struct Other {
    std::string life;
    bool only_end = true;  ///< messages to it are of no interest
  };
  std::string name;  ///< of the record
  std::string own;   ///< the life to which messages come
  std::vector<Other> others{};
  std::int64_t after = 0;  ///< the revision from which on
};

/// What a place offers that has no clock, but leases. An entry of a record lives as long as its
/// life is there, a name beside the record that is attached to a lease; no time that a client wrote
/// counts for anything.
class CasLeases {
 public:
  virtual ~CasLeases() = default;

  /// A new lease, rather longer than `asked`.
  virtual PlaceLease grant(milliseconds asked, const CallOptions& call_options) = 0;

  /// Renews it; its id is 0 if it has ended.
  virtual void renew(PlaceLease& lease, const CallOptions& call_options) = 0;

  /// Grants `lease` as it asks, or renews it if it was granted, and reads the record, both at once.
  virtual Snapshot read_with(PlaceLease& lease, const std::string& name,
                             const CallOptions& call_options) = 0;

  /// Ends leases, and with them all that is attached.
  virtual void revoke(const std::vector<std::int64_t>& leases, const CallOptions& call_options) = 0;

  /// The lengths of leases and what is left of each; 0: it has ended.
  struct Left {
    milliseconds length{0};
    milliseconds left{0};
  };
  virtual std::vector<Left> left_of(const std::vector<std::int64_t>& leases,
                                    const CallOptions& call_options) = 0;

  /// The next message to the own life; or `changed` if it has ended or one of the others has, or
  /// has got a message; or `due` or `interrupted`.
  virtual std::variant<std::string, Wake::Reason> next_event(const WatchedLives& watched,
                                                             Deadline until, int cancel_fd) = 0;
};

/// A place that stores named records and replaces one only if nobody has changed it meanwhile. One
/// thread uses it at a time. Trouble is an Error; after Error{unavailable} from write() the write
/// may have counted, or may count yet.
class CasBackend {
 public:
  virtual ~CasBackend() = default;

  /// With a `channel`, the connection listens to that one, from before the read.
  virtual Snapshot read(const std::string& name, const std::string& channel,
                        const CallOptions& call_options) = 0;

  /// Writes over the state that `over` shows. The version of what was written, or else what is
  /// there instead, read after the attempt.
  virtual std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                                const Update& update,
                                                const CallOptions& call_options) = 0;

  /// For a client that lost a race: reads the record as soon as it can be kept from all other
  /// clients until the write, for a second at most: one that stands still must not hold up others.
  /// Nothing if the place cannot do that.
  virtual std::optional<Snapshot> reserve(const std::string& name,
                                          const CallOptions& call_options) {
    (void)name, (void)call_options;
    return std::nullopt;
  }
  virtual void abandon() {}

  /// The records whose names begin with `prefix` and come after `after`; some hundred at most.
  virtual RecordPage list(const std::string& prefix, const std::string& after,
                          const CallOptions& call_options) = 0;

  /// How many records have names that begin with `prefix`.
  virtual std::int64_t count(const std::string& prefix, const CallOptions& call_options) = 0;

  /// Removes some of the records under `prefix`, after the name `after`, whose end has passed.
  virtual void sweep(const std::string& prefix, const std::string& after,
                     const CallOptions& call_options) = 0;

  /// Names the connection for as long as it lives, as Snapshot::alive does. Empty: others cannot
  /// see whether it lives.
  virtual std::string connection_id() const = 0;

  /// Whether the connection hears messages; otherwise the client has to poll.
  virtual bool hears_messages() const { return !connection_id().empty(); }

  /// The next message on `channel`, or why there is none: `due` or `interrupted`. Throws
  /// Error{unavailable} if the connection no longer listens to it.
  virtual std::variant<std::string, Wake::Reason> next_message(const std::string& channel,
                                                               Deadline until, int cancel_fd) = 0;

  /// Whether clients await_departure() here, so that holders stay connected for their waiters.
  virtual bool has_departures() const { return false; }

  /// Whether there is Snapshot::holding: then holders keep their connections.
  virtual bool keeps_holds() const { return false; }

  /// For a client that hears no messages: waits until the watched one has departed or died
  /// (`changed`), until `until` (`due`), or `interrupted`. Nothing if that cannot be waited for.
  virtual std::optional<Wake::Reason> await_departure(const Watched& watched, Deadline until,
                                                      int cancel_fd) {
    (void)watched, (void)until, (void)cancel_fd;
    return std::nullopt;
  }

  /// Whether the server had so few connections left, when this one began to listen, that a client
  /// may keep none while it sleeps: holders need some to renew.
  virtual bool is_crowded() const { return false; }

  /// Nothing for a place with a clock.
  virtual CasLeases* leases() { return nullptr; }

  /// The most bytes of an Update's text that the engine accepts.
  virtual std::size_t largest_record() const { return SIZE_MAX; }

  /// Drops the connection; the next request opens another.
  virtual void close() = 0;

  /// The name of the place for messages, without credentials.
  virtual std::string name() const = 0;
};

}  // namespace dlock
