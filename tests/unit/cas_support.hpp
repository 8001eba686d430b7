#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <variant>

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "unit/rule_support.hpp"

namespace dlock::test {

/// One record in memory, and the behaviour of its server.
struct SmallPlace {
  std::string text;
  Version version = 0;
  std::size_t largest = 8000;  ///< the maximum size of the record in bytes
  microseconds clock = std::chrono::hours(24);
  bool sends_messages = true;  ///< delivers `messages` to any listener
  std::deque<std::string> messages;
};

/// A client with a live connection.
class SmallBackend final : public CasBackend {
 public:
  explicit SmallBackend(SmallPlace& place) : place_(place) {}

  Snapshot read(const std::string&, OwnLife* own, const CallOptions&) override {
    if (own != nullptr) own->address = "channel.1";
    Snapshot seen;
    seen.text = place_.text;
    seen.version = place_.version;
    seen.clock = place_.clock;
    seen.sent = BootClock::now();
    seen.lives = Lives{Lives::Of::connections, {{"1", 0}}};
    return seen;
  }
  std::variant<Version, Snapshot> write(const std::string&, const Snapshot&, const Update& update,
                                        const CallOptions&) override {
    if (update.text.size() > place_.largest) throw_unavailable("too large for the place");
    place_.text = update.text;
    return ++place_.version;
  }
  RecordPage list(const std::string&, const std::string&, const CallOptions&) override {
    return {};
  }
  std::int64_t count(const std::string&, const CallOptions&) override { return 0; }
  void sweep(const std::string&, const std::string&, const CallOptions&) override {}
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override {
    if (!place_.sends_messages) {
      sleep_until(std::min(until, watch.poll), cancel_fd);
      return Wake::Reason::due;
    }
    // No message has woken the client.
    if (place_.messages.empty()) return Wake::Reason::interrupted;
    const std::string message = place_.messages.front();
    place_.messages.pop_front();
    return message;
  }
  std::size_t largest_record() const override { return place_.largest; }
  void close() override {}
  std::string name() const override { return "small://place"; }

 private:
  SmallPlace& place_;
};

inline CasStore client_of(SmallPlace& place) {
  return {std::make_unique<SmallBackend>(place), "dlock:"};
}

/// A claim on the key `k`.
inline Claim claim_number(int number) {
  Claim made = claim("token-" + std::to_string(number), "owner-" + std::to_string(number));
  made.key.text = "k";
  return made;
}

inline CallOptions in_a_minute() { return {later(BootClock::now(), milliseconds(60'000)), -1}; }

}  // namespace dlock::test
