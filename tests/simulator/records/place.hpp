#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cas/cas_backend.hpp"
#include "simulator/chance.hpp"

namespace dlock::sim {

/// The only clock of a schedule: time passes only where the code sets it.
extern Deadline now_in_schedule;

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
  void pass(milliseconds most);
  microseconds clock() const;
  /// The moment at which the server's clock will show this.
  static Deadline when(microseconds clock);
  /// Applies a write if its version fits; returns the new version, or 0.
  Version apply(const std::string& name, Version over, const Update& update);
  void keep_for_later(const std::string& name, Version over, const Update& update);
  void deliver_all();
  /// Removes free records that nobody has written for a while.
  void sweep(const std::function<bool(const Row&)>& is_free);

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
  Version next_version(Version over);

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

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override;
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override;
  RecordPage list(const std::string&, const std::string&, const CallOptions&) override {
    return {};
  }
  std::int64_t count(const std::string&, const CallOptions&) override { return 0; }
  void sweep(const std::string&, const std::string&, const CallOptions&) override {}
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override;
  void close() override { drop(); }
  std::string name() const override { return "records"; }
  bool is_connected() const { return !id_.empty(); }
  bool has_message() const { return !place_.sessions.at(id_).inbox.empty(); }

 private:
  void connect();
  void drop();
  void trip();
  Snapshot look(const std::string& name, Deadline sent, const Lives& lives) const;
  Lives alive() const;

  RecordPlace& place_;
  std::string id_;
};

}  // namespace dlock::sim
