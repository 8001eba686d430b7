#include "simulator/world.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace dlock::sim {
namespace {

constexpr std::int64_t million = 1'000'000;
/// The machines have been up for an hour when a schedule begins, on a day in 2027.
constexpr Span boot_at_start = std::chrono::hours(1);
constexpr Span wall_at_start = std::chrono::seconds(1'800'000'000);

World* the_world = nullptr;
constexpr std::size_t lines_of_a_story = 100'000;
/// The limit of events; a schedule has some hundred.
constexpr std::uint64_t most_happenings = 300'000;

}  // namespace

MachineClock::MachineClock(std::int64_t rate_ppm, Span wall_ahead)
    : rate_ppm_(rate_ppm), wall_against_boot_(wall_at_start - boot_at_start + wall_ahead) {}

Span MachineClock::boot(Instant now) const {
  const std::int64_t elapsed = now.time_since_epoch().count();
  return boot_at_start +
         Span(elapsed + elapsed / million * rate_ppm_ + elapsed % million * rate_ppm_ / million);
}

Instant MachineClock::instant_of_boot(Span boot) const {
  const std::int64_t shown = (boot - boot_at_start).count();
  const std::int64_t rate = million + rate_ppm_;
  return Instant(Span(shown / rate * million + shown % rate * million / rate));
}

World::World(std::uint64_t seed, bool with_story, Statistics& statistics)
    : chance_(seed), statistics_(statistics), with_story_(with_story) {
  the_world = this;
}

World::~World() {
  statistics_["happenings"] += happened_;
  the_world = nullptr;
}

World& World::here() { return *the_world; }

bool World::later(const Happening& a, const Happening& b) {
  return a.when != b.when ? a.when > b.when : a.order > b.order;
}

void World::at(Instant when, std::function<void()> what) {
  to_come_.push_back({std::max(when, now_), happenings_++, std::move(what)});
  std::push_heap(to_come_.begin(), to_come_.end(), later);
}

bool World::step(Instant end) {
  if (to_come_.empty() || to_come_.front().when > end) {
    now_ = end;
    return false;
  }
  std::pop_heap(to_come_.begin(), to_come_.end(), later);
  const Happening next = std::move(to_come_.back());
  to_come_.pop_back();
  now_ = next.when;
  if (++happened_ == most_happenings) violated("it goes on and on");
  next.what();
  return true;
}

void World::add_to_story(const std::string& text) {
  story_.push_back(text_of(now_.time_since_epoch()) + "  " + text);
  if (story_.size() > lines_of_a_story) story_.pop_front();
}

void World::violated(const std::string& what) {
  if (violation_) return;
  violation_ = what;
  tell([&] { return "VIOLATED: " + what; });
}

std::string text_of(Span span) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(span.count()) / 1e6);
  return text;
}

}  // namespace dlock::sim
