#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/history.hpp"

namespace dlock::test {
namespace {

Held held(std::int64_t fence, std::int64_t first, std::int64_t last) {
  return {fence, first, last, false, "one"};
}

/// A hold that was granted some time between the two.
Held vague(std::int64_t fence, std::int64_t first, std::int64_t last) {
  return {fence, first, last, true, "one"};
}

struct Counts {
  std::size_t overlaps = 0;
  std::size_t duplicates = 0;
  std::size_t inversions = 0;
  bool operator==(const Counts&) const = default;
};

Counts counts(std::vector<Held> history) {
  const Verdict verdict = judge(std::move(history));
  return {verdict.overlaps.size(), verdict.duplicates.size(), verdict.inversions.size()};
}

std::string bytes_of(const std::vector<Beat>& beats) {
  std::string bytes(beats.size() * sizeof(Beat), '\0');
  std::memcpy(bytes.data(), beats.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("a history of grants one after the other with growing fences is as it must be") {
  CHECK(counts({}) == Counts{});
  CHECK(counts({held(3, 300, 400), held(1, 0, 100), held(2, 100, 300)}) == Counts{});
}

TEST_CASE("two that held at the same moment are told, also where others came between") {
  CHECK(counts({held(1, 0, 100), held(2, 99, 200)}) == Counts{1, 0, 0});
  CHECK(counts({held(1, 0, 1000), held(2, 10, 20), held(3, 900, 950)}) == Counts{2, 0, 0});
  CHECK(judge({held(1, 0, 100), held(2, 99, 200)}).overlaps.at(0) ==
        "one with fence 1 from 0 to 100; one with fence 2 from 99 to 200");
}

TEST_CASE("a fence given out twice is told, however long ago") {
  CHECK(counts({held(1, 0, 10), held(2, 20, 30), held(2, 40, 50)}) == Counts{0, 1, 0});
  CHECK(counts({held(1, 0, 10), held(2, 20, 30), held(1, 40, 50)}) == Counts{0, 1, 1});
}

TEST_CASE("a later grant with a smaller fence is told, not only that of the next one") {
  CHECK(counts({held(2, 0, 10), held(1, 20, 30)}) == Counts{0, 0, 1});
  CHECK(counts({held(5, 0, 10), held(6, 20, 30), held(4, 40, 50)}) == Counts{0, 0, 1});
}

TEST_CASE("where two held at the same moment neither was the later one") {
  CHECK(counts({held(2, 0, 100), held(1, 50, 200)}) == Counts{1, 0, 0});
}

TEST_CASE("a grant of which nobody knows when it ended overlaps nothing, but has its place") {
  CHECK(counts({vague(2, 0, 100), held(3, 50, 80), held(1, 10, 20)}) == Counts{});
  CHECK(counts({vague(2, 0, 100), held(1, 101, 200)}) == Counts{0, 0, 1});
  CHECK(counts({held(2, 0, 100), vague(1, 101, 200)}) == Counts{0, 0, 1});
  CHECK(counts({held(2, 0, 100), vague(2, 101, 200)}) == Counts{0, 1, 0});
}

TEST_CASE("what a command did for a moment after a stall is cut off, and nothing else") {
  constexpr std::int64_t ms = 1'000'000;
  const auto stall = [](std::int64_t from, std::int64_t to) {
    return Stall{Deadline(milliseconds(from)), Deadline(milliseconds(to))};
  };
  const auto cut = [](const Held& one, const std::vector<Stall>& stalls) {
    const Held found = apart_from_stalls({one}, stalls).front();
    return found.vague ? -1 : found.last_ns / ms;
  };
  const Held one = held(1, 1000 * ms, 2000 * ms);
  CHECK(cut(one, {}) == 2000);
  CHECK(cut(one, {stall(1500, 1950)}) == 1500);
  CHECK(cut(one, {stall(1500, 2500)}) == 1500);
  CHECK(cut(one, {stall(1200, 1450), stall(1500, 1950)}) == 1200);
  CHECK(cut(one, {stall(1100, 1300), stall(1500, 1950)}) == 1500);
  CHECK(cut(one, {stall(1500, 1850)}) == 2000);
  CHECK(cut(one, {stall(2100, 2500)}) == 2000);
  CHECK(cut(one, {stall(900, 1950)}) == -1);
}

TEST_CASE("of a semaphore the most who held at one moment are counted") {
  CHECK(most_at_once({}) == 0);
  CHECK(most_at_once({held(1, 0, 100), held(2, 100, 200)}) == 1);
  CHECK(most_at_once({held(1, 0, 100), held(2, 50, 200), held(3, 99, 120), vague(4, 60, 70)}) == 3);
}

TEST_CASE("a command held from its first beat to its last, whatever the order of the log") {
  const auto history = held_in(bytes_of(
      {{7, 40, 120, 130, 1}, {7, 40, 100, 110, 1}, {8, 41, 200, 210, 1}, {8, 40, 300, 301, 1}}));
  REQUIRE(history.size() == 3);
  CHECK(history[0].fence == 7);
  CHECK(history[0].first_ns == 100);
  CHECK(history[0].last_ns == 130);
  CHECK(history[1].who == "process 40");
  CHECK(history[2].first_ns == 200);
}

}  // namespace dlock::test
