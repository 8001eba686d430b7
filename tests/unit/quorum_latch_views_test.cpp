#include <doctest/doctest.h>

#include "quorum/latch_views.hpp"

namespace dlock::test {
namespace {

using LatchVerdict = LatchViews::Verdict;

const Error no_answer(Trouble::unavailable, "no answer");

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
  // Then it is to tell of changes, too.
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
