#include "quorum/latch_views.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/escape.hpp"

namespace dlock {

bool LatchViews::View::is_read() const {
  return state == State::present && arrived.size() >= static_cast<std::size_t>(latch.arrived);
}

void LatchViews::begin(bool listen, bool woken) {
  listen_ = listen;
  woken_ = woken;
  by_few_ = false;
  for (View& view : views_) {
    view.state = View::State::silent;
    view.mending = view.listening = false;
  }
}

void LatchViews::take(std::size_t member, const Response& response) {
  View& view = views_[member];
  view.listening = false;
  if (const auto* error = std::get_if<Error>(&response)) {
    // Two names of one server: that is no answer of a member.
    if (error->trouble() == Trouble::usage) throw Error(*error);
    view.state = View::State::failed;
    view.trouble = *error;
    return;
  }
  view.trouble.reset();
  const auto& part = std::get<std::optional<LatchPart>>(response);
  view.state = part ? View::State::present : View::State::absent;
  view.latch = part ? part->state : LatchState();
  // It has forgotten some, and then nobody knows in which order it has the others.
  if (static_cast<std::size_t>(view.latch.arrived) < view.arrived.size()) view.arrived.clear();
  if (!part) return;
  view.listening = listen_ && !view.mending;
  view.arrived.insert(part->arrived.begin(), part->arrived.end());
  arrived_.insert(part->arrived.begin(), part->arrived.end());
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

std::optional<std::int64_t> LatchViews::agreed_count() const {
  std::map<std::int64_t, std::size_t> votes;
  for (const View& view : views_) {
    const bool has_it = view.state == View::State::present;
    if (has_it && ++votes[view.latch.count] >= majority()) return view.latch.count;
  }
  return std::nullopt;
}

LatchState LatchViews::state() const {
  LatchState state;
  std::set<std::int64_t> counts;
  for (const View& view : views_) {
    if (view.state != View::State::present) continue;
    counts.insert(view.latch.count);
    state.arrived = std::max(state.arrived, view.latch.arrived);
    state.left = std::max(state.left, view.latch.left);
  }
  state.count = agreed_count().value_or(counts.empty() ? 0 : *counts.begin());
  if (counts.size() > 1 && !agreed_count()) {
    throw Error(Trouble::wrong_data, escaped(key_.text) + ": some servers have a latch for " +
                                         std::to_string(*counts.begin()) + ", others one for " +
                                         std::to_string(*counts.rbegin()) +
                                         ": take another name for each");
  }
  state.arrived = std::max(state.arrived, static_cast<std::int64_t>(arrived_.size()));
  state.arrived = std::min(state.arrived, state.count);
  return state;
}

bool LatchViews::enough_arrived(std::int64_t count) const {
  return arrived_.size() >= static_cast<std::size_t>(count);
}

LatchViews::Verdict LatchViews::verdict() const {
  if (without_it() >= majority()) return Verdict::gone;
  if (with_it() < majority()) return Verdict::undecided;
  const auto count = agreed_count();
  if (!count) {
    if (silent() == 0) state();
    return Verdict::undecided;
  }
  const auto opened = number_of([&](const View& view) {
    return view.state == View::State::present && view.latch.count == *count && view.latch.open();
  });
  if (opened >= majority()) return Verdict::open;
  const auto read = number_of([](const View& view) { return view.is_read(); });
  return read < majority() || enough_arrived(*count) ? Verdict::undecided : Verdict::shut;
}

std::vector<ArrivalId> LatchViews::missing_at(const View& view) const {
  constexpr std::size_t told_at_once = 1000;
  std::vector<ArrivalId> missing;
  if (view.arrived.size() == arrived_.size()) return missing;
  for (const ArrivalId& id : arrived_) {
    if (missing.size() == told_at_once) break;
    if (!view.arrived.contains(id)) missing.push_back(id);
  }
  return missing;
}

std::optional<Inquiry> LatchViews::next_for(std::size_t member) {
  View& view = views_[member];
  const bool is_there = view.state == View::State::present;
  const bool may_mend = agreed_count().has_value() || (by_few_ && with_it() > 0);
  if (is_there && (!view.is_read() || (listen_ && !view.listening))) {
    view.mending = false;
    return LatchReading{key_, known(member), listen_};
  }
  if ((!is_there && view.state != View::State::absent) || !may_mend) return std::nullopt;
  const LatchState all = state();
  const bool opens = enough_arrived(all.count);
  if (is_there) {
    // Who has just arrived somewhere will be everywhere in a moment.
    const bool comes_by_itself = woken_ && !opens;
    if (view.latch.count != all.count || view.latch.open() || comes_by_itself) return std::nullopt;
  }
  auto missing = missing_at(view);
  if (is_there && missing.empty()) return std::nullopt;
  view.mending = true;
  return LatchMending{key_, {all.count, all.left}, std::move(missing)};
}

}  // namespace dlock
