#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulator/chance.hpp"
#include "simulator/clock.hpp"
#include "simulator/statistics.hpp"

namespace dlock::sim {

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
  Statistics& statistics() { return statistics_; }

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
