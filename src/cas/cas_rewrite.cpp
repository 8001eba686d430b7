#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/wait.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

/// About the time of one write. N clients that want to write draw their pauses from N turns, so
/// that about one at a time tries, whatever N is.
constexpr milliseconds turn{10};

[[noreturn]] void throw_overtaken(const std::string& place) {
  throw_unavailable(place + ": busy: other clients wrote this key first at every try", Cause::busy);
}

/// Leaves no record reserved behind.
class Reservation {
 public:
  explicit Reservation(CasBackend& backend) : backend_(backend) {}
  ~Reservation() { backend_.abandon(); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  CasBackend& backend_;
};

}  // namespace

/// Only the write raises `sent`.
CallOptions CasStore::of_a_read(const CallOptions& call_options) {
  return {call_options.deadline, call_options.cancel_fd};
}

/// The sharers that waited with this client were granted the lock with it, and write now, too.
void CasStore::await_turn(const Claim& claim, const CallOptions& call_options) const {
  const Crowd crowd = crowd_in(last_answer_.text);
  if (claim.limit.owners == 1 || crowd.sharers < 2) return;
  pause(random_up_to(turn * crowd.sharers), call_options);
  if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
}

Snapshot CasStore::rewrite(
    const std::string& name, const std::string& channel, Snapshot seen,
    const CallOptions& call_options,
    const std::function<std::optional<Update>(const Snapshot&, bool unsure)>& make, bool joins) {
  // Random, so that the tries of clients do not meet. The span grows with the number of holders,
  // which confirm and release at the same time. A client that joins the queue leaves time for the
  // other waiters, too, so that a crowd of them does not keep the holder from renewing.
  constexpr milliseconds least{64}, longest{4096};
  const int confirm = crowd_in(seen.text).unconfirmed - 1;
  Backoff pauses(std::max(milliseconds(1), turn * confirm), longest);
  const Reservation reservation(*backend_);
  bool unsure = false, raced = confirm > 0;
  const auto pause_for_others = [&] {
    const Crowd crowd = crowd_in(seen.text);
    const int holders = crowd.holders;
    const int writers = holders + (joins ? crowd.waiters : 0);
    const auto span = random_up_to(std::min(pauses.next(), std::max(least, 2 * turn * writers)));
    pause(span, call_options);
    if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
    if (auto reserved = backend_->reserve(name, of_a_read(call_options))) {
      seen = *std::move(reserved);
    } else if (holders > 1) {
      seen = backend_->read(name, channel, of_a_read(call_options));
    }
  };
  while (true) {
    const auto update = make(seen, unsure);
    if (!update) return seen;
    try {
      auto written = backend_->write(name, seen, *update, call_options);
      if (const auto* version = std::get_if<Version>(&written)) {
        seen.text = update->text;
        seen.version = *version;
        seen.reserved = false;
        if (seen.alive && update->names_connection) seen.alive->insert(backend_->connection_id());
        if (!seen.lives) return seen;
        for (const std::string& life : update->ended_lives) seen.lives->erase(life);
        for (const auto& [life, lease] : update->begun_lives) (*seen.lives)[life] = lease;
        return seen;
      }
      raced = true;
      seen = std::get<Snapshot>(std::move(written));
      pause_for_others();
    } catch (const Error& error) {
      const bool in_time = BootClock::now() < call_options.deadline;
      // The server has answered, and lets others write.
      if (raced && !in_time && error.kind() == ErrorKind::unavailable) {
        throw_overtaken(backend_->name());
      }
      const bool again = error.kind() == ErrorKind::unavailable && !unsure && in_time;
      if (!again) throw;
      unsure = true;
      seen = backend_->read(name, channel, of_a_read(call_options));
      continue;
    }
    if (BootClock::now() >= call_options.deadline) throw_overtaken(backend_->name());
  }
}

}  // namespace dlock
