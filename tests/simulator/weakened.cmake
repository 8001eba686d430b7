# Leaves each safeguard out of the sources and of the servers once.

weaken(renewal_that_creates tests/reference/redis_table.cpp
  "  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);"
  "  if (own == nullptr) {
    HoldEntry again;
    again.token = token;
    again.owner = Owner{token.text.substr(0, token.text.rfind(':'))};
    again.since = now.clock;
    again.ttl = ttl.value_or(milliseconds(1000));
    again.fence = raise_to.value_or(stored.last_fence);
    stored.holds.push_back(again);
    own = &stored.holds.back();
  }
  if (own != nullptr && own->inside()) {
    lease = ttl.value_or(own->ttl);")

weaken(lease_from_the_reply src/lock/lease_validity.cpp
  "later(sent, lease" "later(sent < BootClock::now() ? BootClock::now() : sent, lease")

weaken(half_for_a_majority src/lock/claim.cpp
  "return servers * owners / (owners + 1) + 1;" "return servers * owners / (owners + 1);")

weaken(readers_beside_seats tests/reference/redis_table.cpp
  "return apart(limit, hold.limit);" "return apart(hold.limit, hold.limit);")

weaken(votes_not_released src/quorum/hold_state.cpp
  "std::vector<NodeCall> QuorumHold::release_requests(Deadline now) {"
  "std::vector<NodeCall> QuorumHold::release_requests(Deadline now) {
  if (needed_ > 0) return {};")

weaken(nothing_given_back src/lock/acquire.cpp
  "void Acquisition::leave() {" "void Acquisition::leave() {
  if (!claims_.empty()) return;")

weaken(clock_that_stops_in_a_suspend src/base/clock.cpp "CLOCK_BOOTTIME" "CLOCK_MONOTONIC")

weaken(fence_not_stored src/quorum/hold_state.cpp
  "acquired || vote.fence == fence;" "acquired || vote.fence <= fence;")

weaken(fence_without_clock tests/reference/redis_table.cpp
  "Fence{std::max(stored_.last_fence.value + 1, allowed.count())}"
  "Fence{stored_.last_fence.value + (allowed.count() > 0 ? 1 : 0)}")

weaken(tickets_of_the_wall_clock src/quorum/quorum_store.cpp
  "nodes_.clocks().median(hold.asked_first);"
  "std::optional(wall_now().time_since_epoch());")

weaken(no_restart_guard tests/reference/redis_table.cpp
  "if (now_.quarantine > microseconds(0) && verdict" "if (now_.quarantine < microseconds(0) && verdict")
weaken(no_restart_guard src/quorum/hold_state.cpp
  "vote.quarantined_for = reply.standing.quarantined_for;" "")

weaken(lock_that_is_never_whole_again src/quorum/hold_state.cpp
  "(state == State::gone && acquired && is_complete)"
  "(state == State::gone && !acquired && is_complete)")
