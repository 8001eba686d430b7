#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "simulator/chance.hpp"

namespace dlock::sim {
using Span = std::chrono::nanoseconds;

/// The true time, which no process can read: it is the same everywhere and runs evenly.
struct TrueTime {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = Span;
  using time_point = std::chrono::time_point<TrueTime>;
  static constexpr bool is_steady = true;
};
using Instant = TrueTime::time_point;

/// The clocks of one machine.
class MachineClock {
 public:
  /// `rate_ppm`: how many microseconds they gain in a second. `wall_ahead`: the error of the wall
  /// clock.
  MachineClock(std::int64_t rate_ppm, Span wall_ahead);

  Span boot(Instant now) const;
  /// CLOCK_MONOTONIC: stands still while the machine is suspended.
  Span monotonic(Instant now) const { return boot(now) - suspended_; }
  Span wall(Instant now) const { return boot(now) + wall_against_boot_; }
  /// The instant at which boot() will show this.
  Instant instant_of_boot(Span boot) const;
  Instant instant_of_wall(Span wall) const { return instant_of_boot(wall - wall_against_boot_); }

  void step_wall(Span by) { wall_against_boot_ += by; }
  void suspended(Span boot_time) { suspended_ += boot_time; }

 private:
  std::int64_t rate_ppm_;
  Span wall_against_boot_;
  Span suspended_{0};
};

/// How often each thing happened in all schedules together, to show that the intended faults did
/// happen.
using Statistics = std::map<std::string_view, std::uint64_t>;

/// The time, the random numbers and the coming events of one schedule. There is one World at a
/// time.
class World {
 public:
  World(std::uint64_t seed, bool with_story, Statistics& statistics);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// The current World.
  static World& here();

  Instant now() const { return now_; }
  Chance& chance() { return chance_; }
  void count(const char* what) { ++statistics_[what]; }

  void at(Instant when, std::function<void()> what);
  void after(Span span, std::function<void()> what) { at(now_ + span, std::move(what)); }
  /// Runs the next event; false if there is none before `end`.
  bool step(Instant end);

  /// Adds a line to the story; `text` makes the line only if somebody reads it.
  template <typename Text>
  void tell(const Text& text) {
    if (with_story_) add_to_story(text());
  }
  const std::deque<std::string>& story() const { return story_; }

  /// From here on nothing goes wrong.
  void heal() { healed_ = true; }
  bool healed() const { return healed_; }

  /// Reports that an invariant does not hold, which ends the schedule.
  void violated(const std::string& what);
  const std::optional<std::string>& violation() const { return violation_; }

 private:
  struct Happening {
    Instant when;
    std::uint64_t order;  ///< among those at one instant
    std::function<void()> what;
  };
  static bool later(const Happening& a, const Happening& b);
  void add_to_story(const std::string& text);

  Instant now_{};
  Chance chance_;
  Statistics& statistics_;
  bool with_story_;
  bool healed_ = false;
  std::uint64_t happenings_ = 0;  ///< planned
  std::uint64_t happened_ = 0;
  std::vector<Happening> to_come_;  ///< a heap
  std::deque<std::string> story_;
  std::optional<std::string> violation_;
};

/// `12.345 ms`, for the story.
std::string text_of(Span span);

}  // namespace dlock::sim
