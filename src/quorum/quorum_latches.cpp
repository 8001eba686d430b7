#include "quorum/quorum_latches.hpp"

#include <algorithm>
#include <utility>

#include "base/backoff.hpp"
#include "base/error.hpp"
#include "quorum/merge.hpp"
#include "quorum/quorum_hold.hpp"

namespace dlock {
namespace {

/// How much longer those that would answer at once are given: what a member lacks has to be mended.
constexpr milliseconds a_moment_more{20};

}  // namespace

LatchState QuorumLatches::open_latch(const LockKey& key, const LatchTerms& terms,
                                     const CallOptions& call_options) {
  LatchViews views(key, nodes_.size());
  const auto request = views.propose({terms.count, terms.ttl, new_generation()});
  ask_all(request, call_options.deadline);
  hear_until(views, call_options, [&] { return views.is_opened(); });
  const auto end = std::min(call_options.deadline, later(BootClock::now(), a_moment_more));
  while (nodes_.owing() > 0) {
    const auto heard = nodes_.hear(end, call_options.cancel_fd);
    if (!heard) break;
    take(views, *heard, call_options.deadline);
  }
  return views.state();
}

std::optional<LatchState> QuorumLatches::arrive(const LockKey& key, const ArrivalId& id,
                                                const CallOptions& call_options) {
  Backoff pauses(milliseconds(1), milliseconds(64));
  while (true) {
    LatchViews views(key, nodes_.size());
    const auto decided = [&] {
      return views.is_agreed() || views.without_it() >= nodes_.majority();
    };
    ask_and_hear(views, Arrival{key, id}, call_options, decided);
    if (views.is_agreed()) return views.state();
    // Some of those that answer lack it, or have another: a look gives it to them.
    if (decided() || !look_at_latch(key, false, call_options)) return std::nullopt;
    pause(pauses.next(), call_options);
  }
}

void QuorumLatches::ask_all(const NodeRequest& request, Deadline deadline) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_.ask(i, std::nullopt, request, deadline);
}

void QuorumLatches::ask_and_hear(LatchViews& views, const NodeRequest& request,
                                 const CallOptions& call_options,
                                 const std::function<bool()>& decided) {
  ask_all(request, call_options.deadline);
  Deadline until = call_options.deadline;
  while (views.silent() > 0 && views.may_be_decided()) {
    const auto heard = nodes_.hear(until, call_options.cancel_fd);
    if (!heard) break;
    if (heard->request == 0) continue;
    views.take(heard->member, heard->response);
    const bool enough = views.with_it() + views.without_it() >= nodes_.majority();
    const auto rest = decided() ? a_moment_more : straggler_wait;
    if (enough) until = std::min(until, later(BootClock::now(), rest));
  }
  if (views.with_it() + views.without_it() < nodes_.majority()) no_majority(views);
}

std::optional<LatchState> QuorumLatches::look_at_latch(const LockKey& key, bool listen,
                                                       const CallOptions& call_options) {
  if (!latch_ || latch_->key() != key) latch_.emplace(key, nodes_.size());
  latch_->begin(listen, std::exchange(woken_, false));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_.ask(i, std::nullopt, LatchReading{key, latch_->known(i), listen}, call_options.deadline);
  }
  hear_until(*latch_, call_options,
             [this] { return latch_->verdict() != LatchViews::Verdict::undecided; });
  if (latch_->verdict() == LatchViews::Verdict::gone) return std::nullopt;
  return latch_->state();
}

void QuorumLatches::hear_until(LatchViews& views, const CallOptions& call_options,
                               const std::function<bool()>& settled) {
  // One that is slow may have what decides between the others.
  const auto half = later(BootClock::now(), left_until(call_options.deadline) / 2);
  bool by_few = false;
  while (!settled()) {
    if (!views.may_be_decided() || (by_few && nodes_.owing() == 0)) no_majority(views);
    const auto until = by_few ? call_options.deadline : half;
    const auto heard =
        nodes_.owing() > 0 ? nodes_.hear(until, call_options.cancel_fd) : std::nullopt;
    if (heard) {
      take(views, *heard, call_options.deadline);
    } else if (by_few) {
      no_majority(views);
    } else {
      by_few = true;
      views.mend_by_few();
      ask_for_more(views, call_options.deadline);
    }
  }
}

void QuorumLatches::take(LatchViews& views, const NodeReply& heard, Deadline deadline) {
  const auto* error = std::get_if<Error>(&heard.response);
  if (heard.request != 0) {
    views.take(heard.member, heard.response);
  } else if (error != nullptr) {
    views.take_silence(heard.member, *error);
  }
  ask_for_more(views, deadline);
}

void QuorumLatches::ask_for_more(LatchViews& views, Deadline deadline) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_.owes(i)) continue;
    if (auto request = views.next_for(i))
      nodes_.ask(i, std::nullopt, std::move(*request), deadline);
  }
}

Wake::Reason QuorumLatches::sleep_at_latch(const LockKey&, Deadline until, int cancel_fd) {
  while (true) {
    if (latch_->listening() + nodes_.owing() < nodes_.majority()) no_majority(*latch_);
    std::optional<NodeReply> heard;
    try {
      heard = nodes_.hear(until, cancel_fd);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::interrupted) throw;
      return Wake::Reason::interrupted;
    }
    if (!heard) return Wake::Reason::due;
    woken_ = heard->request == 0 && std::holds_alternative<Wake>(heard->response);
    if (woken_) return Wake::Reason::changed;
    take(*latch_, *heard, short_call().deadline);
    if (latch_->verdict() != LatchViews::Verdict::shut) return Wake::Reason::changed;
  }
}

void QuorumLatches::no_majority(const LatchViews& views) const {
  auto troubles = views.troubles();
  for (std::size_t i = 0; i < troubles.size(); ++i) {
    const auto name = nodes_.name(i);
    if (views.is_silent(i))
      troubles[i].emplace(ErrorKind::unavailable, name + ": no answer in time");
    if (views.is_older(i)) {
      troubles[i].emplace(ErrorKind::unavailable, name + ": it has an older latch of this name");
    }
  }
  throw_no_majority(troubles);
}

}  // namespace dlock
