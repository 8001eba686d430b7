#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "lock/latch.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_store.hpp"

namespace dlock {
namespace {

/// How much longer those that would answer at once are given: what a member lacks has to be mended.
constexpr milliseconds a_moment_more{20};

}  // namespace

LatchState QuorumStore::open_latch(const LockKey& key, const LatchTerms& terms,
                                   const CallOptions& call_options) {
  LatchViews views(key, nodes_->size());
  const auto request = views.propose({terms.count, terms.ttl, new_generation()});
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    ask(i, std::nullopt, request, call_options.deadline);
  }
  settle_latch(views, call_options, [&] { return views.is_opened(); });
  const auto end = std::min(call_options.deadline, later(BootClock::now(), a_moment_more));
  while (owing() > 0) {
    const auto heard = hear(end, call_options.cancel_fd);
    if (!heard) break;
    take_latch(views, *heard, call_options.deadline);
  }
  return views.state();
}

std::optional<LatchState> QuorumStore::arrive(const LockKey& key, const ArrivalId& id,
                                              const CallOptions& call_options) {
  while (true) {
    LatchViews views(key, nodes_->size());
    const auto decided = [&] { return views.is_agreed() || views.without_it() >= majority(); };
    hear_of_latch(views, Arrival{key, id}, call_options, decided);
    if (views.is_agreed()) return views.state();
    // Some of those that answer lack it, or have another: a look gives it to them.
    if (decided() || !look_at_latch(key, false, call_options)) return std::nullopt;
  }
}

void QuorumStore::hear_of_latch(LatchViews& views, const NodeRequest& request,
                                const CallOptions& call_options,
                                const std::function<bool()>& decided) {
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    ask(i, std::nullopt, request, call_options.deadline);
  }
  Deadline until = call_options.deadline;
  while (views.silent() > 0 && views.may_be_decided()) {
    const auto heard = hear(until, call_options.cancel_fd);
    if (!heard) break;
    if (heard->request == 0) continue;
    views.take(heard->member, heard->response);
    const bool enough = views.with_it() + views.without_it() >= majority();
    const auto rest = decided() ? a_moment_more : straggler_wait;
    if (enough) until = std::min(until, later(BootClock::now(), rest));
  }
  if (views.with_it() + views.without_it() < majority()) no_majority(views);
}

std::optional<LatchState> QuorumStore::look_at_latch(const LockKey& key, bool listen,
                                                     const CallOptions& call_options) {
  if (!latch_ || latch_->key() != key) latch_.emplace(key, nodes_->size());
  latch_->begin(listen, std::exchange(woken_, false));
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    ask(i, std::nullopt, LatchReading{key, latch_->known(i), listen}, call_options.deadline);
  }
  settle_latch(*latch_, call_options,
               [this] { return latch_->verdict() != LatchViews::Verdict::undecided; });
  if (latch_->verdict() == LatchViews::Verdict::gone) return std::nullopt;
  return latch_->state();
}

void QuorumStore::settle_latch(LatchViews& views, const CallOptions& call_options,
                               const std::function<bool()>& settled) {
  // One that is slow may have what decides between the others.
  const auto half = later(BootClock::now(), left_until(call_options.deadline) / 2);
  bool by_few = false;
  while (!settled()) {
    if (!views.may_be_decided() || (by_few && owing() == 0)) no_majority(views);
    const auto until = by_few ? call_options.deadline : half;
    const auto heard = owing() > 0 ? hear(until, call_options.cancel_fd) : std::nullopt;
    if (heard) {
      take_latch(views, *heard, call_options.deadline);
    } else if (by_few) {
      no_majority(views);
    } else {
      by_few = true;
      views.mend_by_few();
      ask_more_of_latch(views, call_options.deadline);
    }
  }
}

void QuorumStore::take_latch(LatchViews& views, const NodeReply& heard, Deadline deadline) {
  const auto* error = std::get_if<Error>(&heard.response);
  if (heard.request != 0) {
    views.take(heard.member, heard.response);
  } else if (error != nullptr) {
    views.take_silence(heard.member, *error);
  }
  ask_more_of_latch(views, deadline);
}

void QuorumStore::ask_more_of_latch(LatchViews& views, Deadline deadline) {
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    if (asked_[i].request != 0) continue;
    if (auto request = views.next_for(i)) ask(i, std::nullopt, std::move(*request), deadline);
  }
}

std::size_t QuorumStore::owing() const {
  return static_cast<std::size_t>(std::count_if(
      asked_.begin(), asked_.end(), [](const Asked& asked) { return asked.request != 0; }));
}

Wake::Reason QuorumStore::sleep_at_latch(const LockKey&, Deadline until, int cancel_fd) {
  while (true) {
    if (latch_->listening() + owing() < majority()) no_majority(*latch_);
    std::optional<NodeReply> heard;
    try {
      heard = hear(until, cancel_fd);
    } catch (const Error& error) {
      if (error.trouble() != ErrorKind::interrupted) throw;
      return Wake::Reason::interrupted;
    }
    if (!heard) return Wake::Reason::due;
    woken_ = heard->request == 0 && std::holds_alternative<Wake>(heard->response);
    if (woken_) return Wake::Reason::changed;
    take_latch(*latch_, *heard, short_call().deadline);
    if (latch_->verdict() != LatchViews::Verdict::shut) return Wake::Reason::changed;
  }
}

void QuorumStore::no_majority(const LatchViews& views) const {
  auto troubles = views.troubles();
  for (std::size_t i = 0; i < troubles.size(); ++i) {
    const auto name = nodes_->name(i);
    if (views.is_silent(i))
      troubles[i].emplace(ErrorKind::unavailable, name + ": no answer in time");
    if (views.is_older(i)) {
      troubles[i].emplace(ErrorKind::unavailable, name + ": it has an older latch of this name");
    }
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
