#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>

#include "quorum/latch_views.hpp"

namespace dlock::test {
namespace {

using LatchVerdict = LatchViews::Verdict;

const Error no_answer(ErrorKind::unavailable, "no answer");

Response part(std::int64_t count, std::vector<std::string> ids, std::int64_t arrived = -1) {
  LatchPart part{{count, static_cast<std::int64_t>(ids.size()), milliseconds(1000)}, {}};
  if (arrived >= 0) part.state.arrived = arrived;
  for (auto& id : ids) part.arrived.push_back({std::move(id)});
  return std::optional(part);
}

Response nothing_there() { return std::optional<LatchPart>(); }

LatchViews three() {
  LatchViews views({"k"}, 3);
  views.begin(true, false);
  return views;
}

std::vector<ArrivalId> mended(LatchViews& views, std::size_t member) {
  const auto next = views.next_for(member);
  REQUIRE(next);
  REQUIRE(std::holds_alternative<LatchMending>(*next));
  return std::get<LatchMending>(*next).arrived;
}

TEST_CASE("latch views: a majority without the latch decides that there is none") {
  auto views = three();
  views.take(0, part(2, {"a", "b"}));
  views.take(1, nothing_there());
  CHECK(views.verdict() == LatchVerdict::undecided);
  views.take(2, nothing_there());
  CHECK(views.verdict() == LatchVerdict::gone);
}

TEST_CASE("latch views: those that arrived anywhere have arrived, but open only at a majority") {
  auto views = three();
  views.take(0, part(3, {"a", "b"}));
  CHECK(views.verdict() == LatchVerdict::undecided);
  views.take(1, part(3, {"b", "c"}));
  CHECK(views.verdict() == LatchVerdict::undecided);
  CHECK(views.state().arrived == 3);
  CHECK(mended(views, 0) == std::vector<ArrivalId>{{"c"}});
  CHECK(mended(views, 1) == std::vector<ArrivalId>{{"a"}});
  views.take(0, part(3, {}, 3));
  CHECK(views.verdict() == LatchVerdict::undecided);
  views.take(1, part(3, {}, 3));
  CHECK(views.verdict() == LatchVerdict::open);
}

TEST_CASE("latch views: a member with more than it has told is asked for the rest") {
  auto views = three();
  views.take(0, part(9, {"a", "b"}, 5));
  views.take(1, part(9, {"a"}));
  CHECK(views.verdict() == LatchVerdict::undecided);
  const auto next = views.next_for(0);
  REQUIRE(next);
  CHECK(std::get<LatchReading>(*next).known == 2);
  views.take(0, part(9, {"c", "d", "e"}, 5));
  CHECK(views.verdict() == LatchVerdict::shut);
  CHECK(views.state().arrived == 5);
}

TEST_CASE("latch views: a member that lacks the latch gets it once others agree, or are few") {
  auto views = three();
  views.take(0, part(4, {"a"}));
  views.take(1, nothing_there());
  CHECK_FALSE(views.next_for(1));
  views.mend_by_few();
  CHECK(mended(views, 1) == std::vector<ArrivalId>{{"a"}});
  views.take(1, part(4, {}, 1));
  // Then it must also report changes.
  CHECK(views.listening() == 1);
  const auto next = views.next_for(1);
  REQUIRE(next);
  CHECK(std::get<LatchReading>(*next).listen);
  views.take(1, part(4, {"a"}));
  CHECK(views.listening() == 2);
  CHECK(views.verdict() == LatchVerdict::shut);
}

TEST_CASE(
    "latch views: who has just arrived is not carried to the others, but when that opens it") {
  auto views = three();
  views.begin(true, true);
  views.take(0, part(3, {"a"}));
  views.take(1, part(3, {}));
  CHECK(views.verdict() == LatchVerdict::shut);
  CHECK_FALSE(views.next_for(1));
  views.take(2, part(3, {"b", "c"}));
  CHECK(mended(views, 1).size() == 3);
}

TEST_CASE("latch views: a member that has forgotten is read from the beginning") {
  auto views = three();
  views.take(0, part(9, {"a", "b", "c"}));
  CHECK(views.known(0) == 3);
  views.begin(true, false);
  views.take(0, part(9, {}, 1));
  CHECK(views.known(0) == 0);
  CHECK(std::get<LatchReading>(*views.next_for(0)).known == 0);
}

TEST_CASE("latch views: the count is the majority's, and where there is none that is trouble") {
  auto views = three();
  views.take(0, part(4, {"a"}));
  views.take(1, part(5, {"a"}));
  CHECK(views.verdict() == LatchVerdict::undecided);
  CHECK_FALSE(views.next_for(0));
  auto other = views;
  views.take(2, part(4, {"a"}));
  CHECK(views.verdict() == LatchVerdict::shut);
  CHECK(views.state().count == 4);
  other.take(2, no_answer);
  CHECK_THROWS_AS(other.verdict(), Error);
}

/// A generation that was made this many seconds after the first.
std::string made_after(int seconds) {
  const std::int64_t us = 1'800'000'000'000'000 + std::int64_t{seconds} * 1'000'000;
  char text[40];
  std::snprintf(text, sizeof text, "%016llxabcd", static_cast<unsigned long long>(us));
  return text;
}

Response part_of(const std::string& generation, std::int64_t count, std::vector<std::string> ids) {
  Response made = part(count, std::move(ids));
  std::get<std::optional<LatchPart>>(made)->state.generation = generation;
  return made;
}

LatchMending mending(LatchViews& views, std::size_t member) {
  const auto next = views.next_for(member);
  REQUIRE(next);
  REQUIRE(std::holds_alternative<LatchMending>(*next));
  return std::get<LatchMending>(*next);
}

LatchViews opening() {
  LatchViews views({"k"}, 3);
  views.begin(false, false);
  const auto first = views.propose({2, milliseconds(5000), made_after(100)});
  CHECK(std::get<LatchMending>(first).terms.generation == made_after(100));
  return views;
}

TEST_CASE("latch generations: a later one is larger, and tells when it was made") {
  const auto before = wall_now();
  const std::string first = new_generation(), second = new_generation();
  CHECK(first != second);
  CHECK(made_at(first) >= before);
  CHECK(made_at(second) <= wall_now());
  CHECK(made_at(made_after(7)) - made_at(made_after(0)) == std::chrono::seconds(7));
  CHECK(made_after(1) > made_after(0));
  CHECK(made_at("").time_since_epoch().count() == 0);
}

TEST_CASE("latch views: of an older latch nothing counts, and it is displaced by the majority's") {
  auto views = three();
  views.take(2, part_of(made_after(0), 2, {"x", "y"}));
  views.take(0, part_of(made_after(100), 2, {"y"}));
  views.take(1, part_of(made_after(100), 2, {}));
  CHECK(views.verdict() == LatchVerdict::shut);
  CHECK(views.state().arrived == 1);
  const auto displaced = mending(views, 2);
  CHECK(displaced.terms.generation == made_after(100));
  REQUIRE(displaced.displaced);
  CHECK(displaced.displaced->generation == made_after(0));
  CHECK_FALSE(displaced.displaced->arrivals_stay);
  CHECK(displaced.arrived == std::vector<ArrivalId>{{"y"}});
  CHECK(mended(views, 1) == std::vector<ArrivalId>{{"y"}});
  // The same for a latch with another count.
  views.take(2, part_of(made_after(200), 5, {"x"}));
  CHECK(mending(views, 2).displaced->generation == made_after(200));
}

TEST_CASE("latch views: of two that were opened at once the smaller is taken, with all arrivals") {
  auto views = three();
  views.take(0, part_of(made_after(1), 2, {"x"}));
  views.take(1, part_of(made_after(0), 2, {"y"}));
  CHECK(views.verdict() == LatchVerdict::undecided);
  CHECK_FALSE(views.next_for(0));
  views.mend_by_few();
  CHECK_FALSE(views.next_for(1).has_value());
  const auto joined = mending(views, 0);
  CHECK(joined.terms.generation == made_after(0));
  REQUIRE(joined.displaced);
  CHECK(joined.displaced->arrivals_stay);
  CHECK(joined.arrived == std::vector<ArrivalId>{{"y"}});
  views.take(0, part_of(made_after(0), 2, {"x", "y"}));
  CHECK(views.state().arrived == 2);
}

TEST_CASE(
    "latch views: without a majority an older one with arrivals is left out, an empty joins") {
  auto views = three();
  views.take(0, part_of(made_after(100), 2, {}));
  views.take(1, part_of(made_after(0), 2, {"x", "y"}));
  views.mend_by_few();
  CHECK(views.verdict() == LatchVerdict::undecided);
  CHECK_FALSE(views.next_for(1));
  CHECK(views.is_older(1));
  CHECK_FALSE(views.is_older(0));
  views.take(1, part_of(made_after(0), 2, {}));
  CHECK(mending(views, 1).terms.generation == made_after(100));
}

TEST_CASE("latch views: whoever opens a latch makes it where a majority has none, or else joins") {
  auto views = opening();
  views.take(2, part_of(made_after(0), 2, {"x", "y"}));
  views.take(0, part_of(made_after(100), 2, {}));
  CHECK_FALSE(views.is_opened());
  CHECK_FALSE(views.next_for(0));
  CHECK_FALSE(views.next_for(2));
  views.take(1, part_of(made_after(100), 2, {}));
  CHECK(views.is_opened());
  CHECK(views.state().arrived == 0);
  CHECK(mending(views, 2).displaced->generation == made_after(0));
  auto joining = opening();
  for (const std::size_t i : {0U, 1U}) joining.take(i, part_of(made_after(50), 2, {}));
  CHECK_FALSE(joining.is_opened());
  for (const std::size_t i : {0U, 1U}) {
    const auto longer = mending(joining, i);
    CHECK(longer.terms.generation == made_after(50));
    CHECK(longer.terms.ttl == milliseconds(5000));
    joining.take(i, part_of(made_after(50), 2, {}));
  }
  CHECK(joining.is_opened());
  auto other = opening();
  for (const std::size_t i : {0U, 1U}) other.take(i, part_of(made_after(50), 3, {}));
  CHECK(other.is_opened());
  CHECK(other.state().count == 3);
}

TEST_CASE("latch views: those who make it at once take the smallest, and none of before") {
  auto views = opening();
  views.take(2, part_of(made_after(0), 2, {"x", "y"}));
  views.take(0, part_of(made_after(99), 2, {"z"}));
  views.take(1, part_of(made_after(100), 2, {}));
  CHECK_FALSE(views.is_opened());
  CHECK_FALSE(views.next_for(1));
  views.mend_by_few();
  const auto joined = mending(views, 1);
  CHECK(joined.terms.generation == made_after(99));
  CHECK(joined.displaced->arrivals_stay);
  CHECK_FALSE(views.next_for(2));
  views.take(1, part_of(made_after(99), 2, {}));
  CHECK_FALSE(mending(views, 2).displaced->arrivals_stay);
}

TEST_CASE("latch views: what was put where the latch was missing gives way to it") {
  auto views = opening();
  views.take(0, part_of(made_after(0), 2, {"x"}));
  views.take(1, part_of(made_after(100), 2, {}));
  views.take(2, no_answer);
  CHECK_FALSE(views.next_for(1));
  views.mend_by_few();
  CHECK(mending(views, 1).terms.generation == made_after(0));
  views.take(1, part_of(made_after(0), 2, {}));
  CHECK(mending(views, 0).terms.ttl == milliseconds(5000));
}

TEST_CASE("latch views: too few that answer decide nothing") {
  auto views = three();
  views.take(0, part(1, {"a"}));
  views.take(1, no_answer);
  CHECK(views.may_be_decided());
  views.take(2, no_answer);
  CHECK_FALSE(views.may_be_decided());
  CHECK(views.verdict() == LatchVerdict::undecided);
}

}  // namespace
}  // namespace dlock::test
