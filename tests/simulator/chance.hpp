#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace dlock::sim {

/// The random numbers that decide everything in a schedule. The generators of the standard library
/// are not used, because their numbers differ between platforms. SplitMix64: Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", 2014.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

  /// A number from 0 to `most`, both included.
  std::size_t up_to(std::size_t most) { return next() % (most + 1); }
  /// True once in `times`; never for 0.
  bool one_in(std::size_t times) { return times != 0 && next() % times == 0; }

  template <typename Span>
  Span between(Span least, Span most) {
    if (most <= least) return least;
    const auto width = static_cast<std::uint64_t>((most - least).count());
    return least + Span(static_cast<typename Span::rep>(next() % (width + 1)));
  }

  /// A span of any order of magnitude: short spans are about as frequent as long ones.
  template <typename Span>
  Span over_scales(Span least, Span most) {
    Span scale = most;
    while (scale > least && one_in(2)) scale /= 2;
    return between(least, scale < least ? least : scale);
  }

 private:
  std::uint64_t state_;
};

}  // namespace dlock::sim
