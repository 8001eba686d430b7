#include "quorum/latch_views.hpp"

#include <algorithm>
#include <chrono>

#include "base/text.hpp"

namespace dlock {
namespace {

/// Who opens a latch at the same time as another does it within its deadline, and their clocks
/// differ by seconds.
constexpr std::chrono::seconds same_time{10};

bool is_of_same_time(const std::string& a, const std::string& b) {
  return std::chrono::abs(made_at(a) - made_at(b)) <= same_time;
}

}  // namespace

bool LatchViews::View::is_read() const {
  return state == State::present && arrived.size() >= static_cast<std::size_t>(latch.arrived);
}

bool LatchViews::View::has(const Which& one) const {
  return state == State::present && which() == one;
}

NodeRequest LatchViews::propose(const LatchTerms& terms) {
  proposal_ = terms;
  for (View& view : views_) {
    view.mending = true;
    view.asked_for = terms.generation;
  }
  return LatchMending{key_, terms, std::nullopt, {}};
}

void LatchViews::begin(bool listen, bool woken) {
  listen_ = listen;
  woken_ = woken;
  by_few_ = false;
  for (View& view : views_) {
    view.state = View::State::silent;
    view.mending = view.mended = view.listening = false;
  }
}

void LatchViews::take(std::size_t member, const Response& response) {
  View& view = views_[member];
  view.listening = false;
  if (const auto* error = std::get_if<Error>(&response)) {
    // Two names of one server: that is no answer of a member.
    if (error->kind() == ErrorKind::usage) throw Error(*error);
    view.state = View::State::failed;
    view.trouble = *error;
    return;
  }
  view.trouble.reset();
  const auto& part = std::get<std::optional<LatchPart>>(response);
  const Which before = view.which();
  view.state = part ? View::State::present : View::State::absent;
  view.latch = part ? part->state : LatchState();
  view.mended = view.mending && part && part->state.generation == view.asked_for;
  // It has forgotten some, and then nobody knows in which order it has the others.
  const bool fewer = static_cast<std::size_t>(view.latch.arrived) < view.arrived.size();
  if (fewer || view.which() != before) view.arrived.clear();
  if (!part) return;
  view.listening = listen_ && !view.mending;
  view.arrived.insert(part->arrived.begin(), part->arrived.end());
  arrived_[view.which()].insert(part->arrived.begin(), part->arrived.end());
}

void LatchViews::take_silence(std::size_t member, const Error& why) {
  views_[member].listening = false;
  views_[member].trouble = why;
  views_[member].arrived.clear();
}

template <typename Is>
std::size_t LatchViews::number_of(const Is& is) const {
  return static_cast<std::size_t>(std::count_if(views_.begin(), views_.end(), is));
}

std::size_t LatchViews::with_it() const {
  return number_of([](const View& view) { return view.state == View::State::present; });
}

std::size_t LatchViews::without_it() const {
  return number_of([](const View& view) { return view.state == View::State::absent; });
}

std::size_t LatchViews::silent() const {
  return number_of([](const View& view) { return view.state == View::State::silent; });
}

bool LatchViews::is_silent(std::size_t member) const {
  return views_[member].state == View::State::silent;
}

bool LatchViews::is_older(std::size_t member) const {
  const auto which = newest();
  return which && views_[member].state == View::State::present && !views_[member].has(*which);
}

std::size_t LatchViews::listening() const {
  return number_of([](const View& view) { return view.listening; });
}

bool LatchViews::may_be_decided() const {
  return with_it() + without_it() + silent() >= majority();
}

std::vector<std::optional<Error>> LatchViews::troubles() const {
  std::vector<std::optional<Error>> troubles;
  for (const View& view : views_) troubles.push_back(view.trouble);
  return troubles;
}

std::optional<LatchViews::Which> LatchViews::agreed() const {
  std::map<Which, std::size_t> votes;
  for (const View& view : views_) {
    const bool has_it = view.state == View::State::present;
    if (has_it && ++votes[view.which()] >= majority()) return view.which();
  }
  return std::nullopt;
}

bool LatchViews::is_proposed(const Which& which) const {
  return proposal_ && proposal_->generation == which.generation;
}

/// Of those that any member has, the first that was proposed at the time of the last; nothing where
/// they count to different numbers. A proposal of ours alone gives way to what some have arrived
/// at: we have just put it where that one may have been missing.
std::optional<LatchViews::Which> LatchViews::newest() const {
  std::set<Which> all;
  std::optional<Which> with_arrivals;
  for (const View& view : views_) {
    if (view.state != View::State::present) continue;
    all.insert(view.which());
    if (view.latch.arrived > 0)
      with_arrivals = std::max(with_arrivals, std::optional(view.which()));
  }
  if (all.empty() || all.begin()->count != all.rbegin()->count) return std::nullopt;
  const Which first = *std::find_if(all.begin(), all.end(), [&](const Which& which) {
    return is_of_same_time(which.generation, all.rbegin()->generation);
  });
  const bool ours_alone = is_proposed(first) && first == *all.rbegin();
  return ours_alone && with_arrivals ? with_arrivals : first;
}

std::optional<LatchViews::Which> LatchViews::aim() const {
  if (auto all = agreed()) return all;
  return by_few_ ? newest() : std::nullopt;
}

/// Without a majority nobody knows whether those have ended who have arrived at an older one.
bool LatchViews::may_join(const View& view, const Which& aim) const {
  return by_few_ && view.latch.count == aim.count &&
         (view.latch.arrived == 0 || is_of_same_time(view.latch.generation, aim.generation));
}

const std::set<ArrivalId>& LatchViews::arrived_at(const Which& which) const {
  static const std::set<ArrivalId> nobody;
  const auto found = arrived_.find(which);
  return found == arrived_.end() ? nobody : found->second;
}

milliseconds LatchViews::left_of(const Which& which) const {
  milliseconds left{0};
  for (const View& view : views_) {
    if (view.has(which)) left = std::max(left, view.latch.left);
  }
  if (proposal_ && proposal_->count == which.count) left = std::max(left, proposal_->ttl);
  return left;
}

LatchState LatchViews::state() const {
  LatchState state;
  const auto which = agreed();
  std::set<std::int64_t> counts;
  for (const View& view : views_) {
    if (view.state != View::State::present || (which && !view.has(*which))) continue;
    counts.insert(view.latch.count);
    state.arrived = std::max(state.arrived, view.latch.arrived);
    state.left = std::max(state.left, view.latch.left);
  }
  if (counts.size() > 1) {
    throw Error(ErrorKind::wrong_data, escaped(key_.text) + ": some servers have a latch for " +
                                           std::to_string(*counts.begin()) + ", others one for " +
                                           std::to_string(*counts.rbegin()) +
                                           ": take another name for each");
  }
  state.count = counts.empty() ? 0 : *counts.begin();
  if (which) {
    const auto known = static_cast<std::int64_t>(arrived_at(*which).size());
    state.arrived = std::max(state.arrived, known);
  }
  state.arrived = std::min(state.arrived, state.count);
  return state;
}

bool LatchViews::is_opened() const {
  const auto which = agreed();
  if (!which) {
    if (silent() + without_it() == 0) state();
    return false;
  }
  if (which->count != proposal_->count) return true;
  return number_of([&](const View& view) { return view.has(*which) && view.mended; }) >= majority();
}

LatchViews::Verdict LatchViews::verdict() const {
  if (without_it() >= majority()) return Verdict::gone;
  if (with_it() < majority()) return Verdict::undecided;
  const auto which = agreed();
  if (!which) {
    if (silent() == 0) state();
    return Verdict::undecided;
  }
  const auto opened =
      number_of([&](const View& view) { return view.has(*which) && view.latch.open(); });
  if (opened >= majority()) return Verdict::open;
  const auto read = number_of([&](const View& view) { return view.has(*which) && view.is_read(); });
  const bool enough = arrived_at(*which).size() >= static_cast<std::size_t>(which->count);
  return read < majority() || enough ? Verdict::undecided : Verdict::shut;
}

std::vector<ArrivalId> LatchViews::missing_at(const View& view, const Which& which) const {
  constexpr std::size_t told_at_once = 1000;
  std::vector<ArrivalId> missing;
  const auto& all = arrived_at(which);
  const bool same = view.has(which);
  if (same && view.arrived.size() == all.size()) return missing;
  for (const ArrivalId& id : all) {
    if (missing.size() == told_at_once) break;
    if (!same || !view.arrived.contains(id)) missing.push_back(id);
  }
  return missing;
}

bool LatchViews::is_to_read(const View& view) const {
  return !proposal_ && (!view.is_read() || (listen_ && !view.listening));
}

std::optional<NodeRequest> LatchViews::next_for(std::size_t member) {
  View& view = views_[member];
  const bool is_there = view.state == View::State::present;
  const auto which = aim();
  if (is_there && (!which || view.has(*which)) && is_to_read(view)) {
    view.mending = false;
    return LatchReading{key_, known(member), listen_};
  }
  if ((!is_there && view.state != View::State::absent) || !which) return std::nullopt;
  return is_there && !view.has(*which) ? displace(view, *which) : mend(view, *which);
}

std::optional<NodeRequest> LatchViews::displace(View& view, const Which& which) {
  const bool ended = is_agreed();
  if (!ended && !may_join(view, which)) return std::nullopt;
  view.mending = true;
  view.asked_for = which.generation;
  return LatchMending{key_,
                      {which.count, left_of(which), which.generation},
                      Displaced{view.latch.generation, !ended},
                      missing_at(view, which)};
}

std::optional<NodeRequest> LatchViews::mend(View& view, const Which& which) {
  auto missing = missing_at(view, which);
  if (view.state == View::State::present) {
    const bool opens = arrived_at(which).size() >= static_cast<std::size_t>(which.count);
    // Who has just arrived somewhere will be everywhere in a moment.
    const bool comes_by_itself = woken_ && !opens;
    const bool lacks_some = !missing.empty() && !view.latch.open() && !comes_by_itself;
    if (proposal_ ? view.mended : !lacks_some) return std::nullopt;
  }
  view.mending = true;
  view.asked_for = which.generation;
  return LatchMending{
      key_, {which.count, left_of(which), which.generation}, std::nullopt, std::move(missing)};
}

}  // namespace dlock
