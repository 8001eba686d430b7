#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {
namespace {

/// How much longer those that would answer at once are given: what a member lacks has to be mended.
constexpr milliseconds a_moment_more{20};

}  // namespace

LatchState QuorumStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                   const Patience& patience) {
  LatchViews views(key, council_->size());
  hear_of_latch(views, LatchMending{key, terms, {}}, patience,
                [&] { return views.agreed_count().has_value(); });
  return views.state();
}

std::optional<LatchState> QuorumStore::arrive(const LockKey& key, const ArrivalId& id,
                                              const Patience& patience) {
  while (true) {
    LatchViews views(key, council_->size());
    const auto decided = [&] {
      return std::max(views.with_it(), views.without_it()) >= majority();
    };
    hear_of_latch(views, Arrival{key, id}, patience, decided);
    if (views.with_it() >= majority()) return views.state();
    // Some of those that answer lack it: a look gives it to them.
    if (decided() || !look_at_latch(key, false, patience)) return std::nullopt;
  }
}

void QuorumStore::hear_of_latch(LatchViews& views, const Inquiry& inquiry, const Patience& patience,
                                const std::function<bool()>& decided) {
  for (std::size_t i = 0; i < council_->size(); ++i) {
    ask(i, std::nullopt, inquiry, patience.deadline);
  }
  Deadline until = patience.deadline;
  while (views.silent() > 0 && views.may_be_decided()) {
    const auto heard = hear(until, patience.interrupt_fd);
    if (!heard) break;
    if (heard->inquiry == 0) continue;
    views.take(heard->member, heard->response);
    const bool enough = views.with_it() + views.without_it() >= majority();
    const auto rest = decided() ? a_moment_more : for_the_rest;
    if (enough) until = std::min(until, later(BootClock::now(), rest));
  }
  if (views.with_it() + views.without_it() < majority()) no_majority(views);
}

std::optional<LatchState> QuorumStore::look_at_latch(const LockKey& key, bool listen,
                                                     const Patience& patience) {
  if (!latch_ || latch_->key() != key) latch_.emplace(key, council_->size());
  latch_->begin(listen, std::exchange(woken_, false));
  for (std::size_t i = 0; i < council_->size(); ++i) {
    ask(i, std::nullopt, LatchReading{key, latch_->known(i), listen}, patience.deadline);
  }
  Deadline until = patience.deadline;
  while (latch_->verdict() == LatchViews::Verdict::undecided) {
    if (!latch_->may_be_decided()) no_majority(*latch_);
    const auto heard = hear(until, patience.interrupt_fd);
    if (heard) {
      take_latch(*heard, patience.deadline);
      const bool few = latch_->with_it() + latch_->without_it() >= majority();
      if (few) until = std::min(until, later(BootClock::now(), for_the_rest));
    } else if (until < patience.deadline) {
      until = patience.deadline;
      latch_->mend_by_few();
      ask_more_of_latch(patience.deadline);
    } else {
      no_majority(*latch_);
    }
  }
  if (latch_->verdict() == LatchViews::Verdict::gone) return std::nullopt;
  return latch_->state();
}

/// What was heard of the latch that is looked at.
void QuorumStore::take_latch(const Heard& heard, Deadline deadline) {
  const auto* error = std::get_if<Error>(&heard.response);
  if (heard.inquiry != 0) {
    latch_->take(heard.member, heard.response);
  } else if (error != nullptr) {
    latch_->take_silence(heard.member, *error);
  }
  ask_more_of_latch(deadline);
}

void QuorumStore::ask_more_of_latch(Deadline deadline) {
  for (std::size_t i = 0; i < council_->size(); ++i) {
    if (asked_[i].inquiry != 0) continue;
    if (auto inquiry = latch_->next_for(i)) ask(i, std::nullopt, std::move(*inquiry), deadline);
  }
}

Wake::Why QuorumStore::sleep_at_latch(const LockKey&, Deadline until, int interrupt_fd) {
  while (true) {
    const auto owing = std::count_if(asked_.begin(), asked_.end(),
                                     [](const Asked& asked) { return asked.inquiry != 0; });
    if (latch_->listening() + static_cast<std::size_t>(owing) < majority()) no_majority(*latch_);
    std::optional<Heard> heard;
    try {
      heard = hear(until, interrupt_fd);
    } catch (const Error& error) {
      if (error.trouble() != Trouble::interrupted) throw;
      return Wake::Why::interrupted;
    }
    if (!heard) return Wake::Why::due;
    woken_ = heard->inquiry == 0 && std::holds_alternative<Wake>(heard->response);
    if (woken_) return Wake::Why::changed;
    take_latch(*heard, short_patience().deadline);
    if (latch_->verdict() != LatchViews::Verdict::shut) return Wake::Why::changed;
  }
}

void QuorumStore::no_majority(const LatchViews& views) const {
  auto troubles = views.troubles();
  for (std::size_t i = 0; i < troubles.size(); ++i) {
    if (!views.is_silent(i)) continue;
    troubles[i].emplace(Trouble::unavailable, council_->name(i) + ": no answer in time");
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
