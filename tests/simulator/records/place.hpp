#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cas/cas_backend.hpp"
#include "cas/open_record.hpp"
#include "simulator/chance.hpp"

namespace dlock::sim {

/// The server's clock differs from ours.
constexpr std::chrono::hours clock_ahead{1000};
constexpr milliseconds latency{40};
/// A request that creates a record is late by less than the server remembers; others by any time.
constexpr std::chrono::seconds late_creation{20};
constexpr std::chrono::seconds late_change{200};
constexpr std::chrono::seconds untouched{60};

/// The only clock of a schedule: time passes only where the code sets it.
inline Deadline now_in_schedule{std::chrono::hours(1)};

/// The frequency of each fault: once in so many requests, 0 for never.
struct RecordFaults {
  std::size_t lost = 0;        ///< a request never arrives
  std::size_t reply_lost = 0;  ///< it arrives, but its answer does not
  std::size_t late = 0;        ///< the client has given up when it arrives
  std::size_t doubled = 0;     ///< a copy of it arrives later
};

/// A fault that a server must not have, built in to see that it is caught.
enum class PlaceFlaw { none, ignores_version, reuses_versions, judges_early };

/// Records in memory, and a network that has faults.
class RecordPlace {
 public:
  RecordPlace(Chance& chance, RecordFaults faults, PlaceFlaw flaw)
      : chance_(chance), faults_(faults), flaw_(flaw) {}

  struct Row {
    std::string text;
    Version version = 0;
    Deadline written{};
  };
  struct Session {
    bool listens = false;
    std::deque<std::string> inbox;
  };

  /// Lets time pass, other clients act, and late requests arrive.
  void pass(milliseconds most) {
    now_in_schedule += chance_.over_scales(microseconds(10), microseconds(most));
    std::vector<Late> due;
    std::erase_if(late_, [&](const Late& each) {
      if (each.at > now_in_schedule) return false;
      due.push_back(each);
      return true;
    });
    for (const Late& each : due) apply(each.name, each.over, each.update);
    if (meanwhile) meanwhile();
  }
  microseconds clock() const {
    return std::chrono::floor<microseconds>(now_in_schedule.time_since_epoch() + clock_ahead);
  }
  /// The moment at which the server's clock will show this.
  static Deadline when(microseconds clock) { return Deadline(clock - clock_ahead); }
  /// Applies a write if its version fits; returns the new version, or 0.
  Version apply(const std::string& name, Version over, const Update& update) {
    const auto found = rows.find(name);
    const Version there = found == rows.end() ? 0 : found->second.version;
    const bool counts = there == over || (flaw_ == PlaceFlaw::ignores_version && there != 0);
    if (!counts) return 0;
    rows[name] = {update.text, next_version(over), now_in_schedule};
    for (const Wakeup& wakeup : update.wakeups) {
      const auto session = sessions.find(life_in(wakeup.to));
      if (session != sessions.end() && session->second.listens) {
        session->second.inbox.push_back(wakeup.message);
      }
    }
    return rows[name].version;
  }
  void keep_for_later(const std::string& name, Version over, const Update& update) {
    const auto most = over == 0 ? late_creation : late_change;
    late_.push_back({now_in_schedule + chance_.over_scales(milliseconds(1), milliseconds(most)),
                     name, over, update});
  }
  void deliver_all() {
    for (const Late& each : late_) apply(each.name, each.over, each.update);
    late_.clear();
  }
  /// Removes free records that nobody has written for a while.
  void sweep(const std::function<bool(const Row&)>& is_free) {
    std::erase_if(rows, [&](const auto& named) {
      return named.second.written + untouched < now_in_schedule && is_free(named.second);
    });
  }

  std::map<std::string, Row> rows;
  std::map<std::string, Session> sessions;  ///< of the connected clients, by connection
  std::function<void()> meanwhile;          ///< what other clients do during a request
  Chance& chance() { return chance_; }
  const RecordFaults& faults() const { return faults_; }
  PlaceFlaw flaw() const { return flaw_; }

 private:
  struct Late {
    Deadline at;
    std::string name;
    Version over;
    Update update;
  };
  Version next_version(Version over) {
    if (over != 0) return over + 1;
    return flaw_ == PlaceFlaw::reuses_versions ? 1 : static_cast<Version>(chance_.next() >> 2) + 1;
  }

  Chance& chance_;
  RecordFaults faults_;
  PlaceFlaw flaw_;
  std::vector<Late> late_;
};

/// A client's access to the records.
class SimulatedBackend final : public CasBackend {
 public:
  explicit SimulatedBackend(RecordPlace& place) : place_(place) {}
  ~SimulatedBackend() override { drop(); }

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions&) override {
    const Deadline sent = now_in_schedule;
    const auto early = alive();
    connect();
    trip();
    if (place_.chance().one_in(place_.faults().lost)) {
      drop();
      throw_unavailable("lost");
    }
    if (own != nullptr && own->waits) place_.sessions[id_].listens = true;
    if (own != nullptr) own->address = "channel." + id_;
    const bool judges_early = place_.flaw() == PlaceFlaw::judges_early;
    const Snapshot seen = look(name, sent, judges_early ? early : alive());
    trip();  // the reply ages on its way
    return seen;
  }
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update, const CallOptions&) override {
    const Deadline sent = now_in_schedule;
    const auto early = alive();
    connect();
    if (!update.begun.empty() && !update.begun.contains(id_)) throw_unavailable("closed");
    trip();
    const auto fails = [&](std::size_t once_in) {
      if (!place_.chance().one_in(once_in)) return false;
      drop();
      return true;
    };
    if (fails(place_.faults().lost)) throw_unavailable("lost");
    if (fails(place_.faults().late)) {
      place_.keep_for_later(name, over.version, update);
      throw_unavailable("no answer in time");
    }
    if (place_.chance().one_in(place_.faults().doubled)) {
      place_.keep_for_later(name, over.version, update);
    }
    const Version version = place_.apply(name, over.version, update);
    const bool judges_early = place_.flaw() == PlaceFlaw::judges_early;
    const Snapshot seen = look(name, sent, judges_early ? early : alive());
    if (fails(place_.faults().reply_lost)) throw_unavailable("reply lost");
    trip();
    if (version != 0) return version;
    return seen;
  }
  RecordPage list(const std::string&, const std::string&, const CallOptions&) override {
    return {};
  }
  std::int64_t count(const std::string&, const CallOptions&) override { return 0; }
  void sweep(const std::string&, const std::string&, const CallOptions&) override {}
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline, int) override {
    const auto session = place_.sessions.find(id_);
    const bool listens = session != place_.sessions.end() && session->second.listens;
    if (!listens || life_in(watch.own) != id_) throw_unavailable("does not listen");
    auto& inbox = session->second.inbox;
    if (inbox.empty()) return Wake::Reason::due;
    std::string message = std::move(inbox.front());
    inbox.pop_front();
    return message;
  }
  void close() override { drop(); }
  std::string name() const override { return "records"; }
  bool is_connected() const { return !id_.empty(); }
  bool has_message() const { return !place_.sessions.at(id_).inbox.empty(); }

 private:
  void connect() {
    if (!id_.empty()) return;
    id_ = std::to_string(place_.chance().next() >> 16);
    place_.sessions[id_] = {};
  }
  void drop() {
    place_.sessions.erase(id_);
    id_.clear();
  }
  void trip() { place_.pass(latency); }
  Snapshot look(const std::string& name, Deadline sent, const Lives& living) const {
    Snapshot seen;
    seen.clock = place_.clock();
    seen.sent = sent;
    seen.lives = living;
    const auto found = place_.rows.find(name);
    if (found == place_.rows.end()) return seen;
    seen.text = found->second.text;
    seen.version = found->second.version;
    return seen;
  }
  Lives alive() const {
    Lives lives;
    for (const auto& [id, session] : place_.sessions) lives.ids.emplace(id, 0);
    return lives;
  }

  RecordPlace& place_;
  std::string id_;
};

}  // namespace dlock::sim
