#include "simulator/node_worker.hpp"

#include <algorithm>
#include <utility>

namespace dlock::sim {
namespace {

milliseconds ceil_ms(microseconds span) { return std::chrono::ceil<milliseconds>(span); }

Refusal refusal_of(const Refused& refused, microseconds now) {
  Refusal refusal;
  refusal.why = refused.why;
  std::vector<Holder> holds;
  for (const HoldEntry& entry : refused.holds) {
    Holder hold;
    hold.owner = entry.flag == Flag::cooldown ? "" : entry.owner.text;
    hold.who = entry.who;
    hold.acquired_at = WallTime(entry.since);
    hold.held = std::max(ceil_ms(now - entry.since), milliseconds(0));
    hold.lease_left = ceil_ms(left_of(entry, now));
    hold.limit = entry.limit;
    hold.fence = entry.fence;
    hold.kept = entry.flag == Flag::cooldown;
    holds.push_back(std::move(hold));
  }
  refusal.held_by = holders_of(std::move(holds));
  refusal.holders = refusal.held_by.size();
  refusal.ahead = refused.ahead;
  refusal.waiting = refused.waiting;
  refusal.ticket = refused.ticket;
  refusal.ask_again_in = refused.ask_again;
  return refusal;
}

/// Whether the answer to `earlier` is dropped once the node is asked for `later`.
bool overtakes(const Task& later, const Task& earlier) {
  return !earlier.is_release() && !(is_upkeep(earlier.request) && is_upkeep(later.request));
}

Grant grant_of(const Granted& granted) { return Grant{granted.fence, Lease{granted.lease, {}}}; }

}  // namespace

SimulatedNodeWorker::SimulatedNodeWorker(Process& process, std::deque<Unheard>& inbox,
                                         Network& network, Server& server, std::size_t client,
                                         std::size_t node)
    : process_(process),
      inbox_(inbox),
      network_(network),
      server_(server),
      client_(client),
      node_(node) {}

void SimulatedNodeWorker::post(Task task) {
  if (current_ && overtakes(task, *current_)) break_off();
  tasks_.push_back(std::move(task));
  begin_next();
}

/// Abandons the current task for a newer one: either closes the link, or ignores the answer on it.
void SimulatedNodeWorker::break_off() {
  if (World::here().chance().one_in(2)) close_link();
  ++requests_;
  current_.reset();
}

void SimulatedNodeWorker::begin_next() {
  while (!current_ && !tasks_.empty()) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool overtaken = std::any_of(tasks_.begin(), tasks_.end(),
                                       [&](const Task& later) { return overtakes(later, task); });
    if (overtaken && World::here().chance().one_in(2)) continue;
    const auto number = task.number;
    begin(std::move(task));
    if (overtaken && current_ && current_->number == number) break_off();
  }
}

void SimulatedNodeWorker::begin(Task task) {
  current_ = std::move(task);
  tried_again_ = false;
  const auto left = current_->deadline - process_.read_clock();
  if (left <= Span(0)) return fail("no time");
  World::here().at(process_.instant_after(left),
                   [weak = weak_from_this(), number = current_->number] {
                     if (const auto self = weak.lock()) self->timed_out(number);
                   });
  send_current();
}

void SimulatedNodeWorker::send_current() {
  step_ = Step::answer;
  if (!link_ || !link_->is_open()) {
    latest_ = network_.next_link();
    link_ = std::make_shared<Link>(network_, server_, client_, node_, weak_from_this(), latest_);
  }
  const Request request = request_of(current_->request);
  if (const auto* vote = std::get_if<Vote>(&request)) {
    unanswered_.try_emplace(vote->claim.token, latest_);
    votes_under_way_[requests_ + 1] = vote->claim.token;
    listening_.reset();
  }
  if (const auto* rejoining = std::get_if<Rejoining>(&request)) {
    unanswered_.try_emplace(rejoining->claim.token, latest_);
    votes_under_way_[requests_ + 1] = rejoining->claim.token;
  }
  sent_ = process_.read_clock();
  send(request);
}

void SimulatedNodeWorker::send(Request request) { link_->send(++requests_, std::move(request)); }

Request SimulatedNodeWorker::request_of(const NodeRequest& request) {
  if (const auto* vote = std::get_if<Vote>(&request)) return *vote;
  if (const auto* renewal = std::get_if<Renewal>(&request)) return *renewal;
  if (const auto* rejoining = std::get_if<Rejoining>(&request)) return *rejoining;
  const auto& release = std::get<Release>(request);
  constexpr milliseconds long_enough{60'000};
  const Token& token = release.claim.token;
  if (listening_ && *listening_ == token) listening_.reset();
  return WireRelease{token,
                     {release.how.renewed_elsewhere || may_come_late(token),
                      release.how.mode == ReleaseMode::ignore_floor, long_enough}};
}

/// Whether a request that records a hold may be executed after what is sent now, because it went
/// out on another link.
bool SimulatedNodeWorker::may_come_late(const Token& token) const {
  const auto found = unanswered_.find(token);
  return found != unanswered_.end() && found->second != latest_;
}

void SimulatedNodeWorker::close_link(bool silently) {
  if (link_) link_->close(silently);
  link_.reset();
  listening_.reset();
}

void SimulatedNodeWorker::timed_out(std::uint64_t number) {
  if (!current_ || current_->number != number) return;
  if (process_.frozen()) {
    World::here().at(process_.thaw(), [weak = weak_from_this(), number] {
      if (const auto self = weak.lock()) self->timed_out(number);
    });
    return;
  }
  close_link();
  fail("no answer in time");
}

void SimulatedNodeWorker::broken(std::uint64_t link) {
  if (link != latest_) return;
  const bool was_listening = listening_.has_value();
  close_link();
  if (!current_) {
    if (was_listening) say(0, Error(ErrorKind::unavailable, server_.name() + ": link broken"));
    return;
  }
  if (std::exchange(tried_again_, true)) return fail("link broken");
  send_current();
}

/// Notes an answer. No copy of that vote can come late any more, unless it was sent more than once.
void SimulatedNodeWorker::note_answered(std::uint64_t link, std::uint64_t request) {
  const auto vote = votes_under_way_.extract(request);
  if (!vote) return;
  const bool again = std::any_of(votes_under_way_.begin(), votes_under_way_.end(),
                                 [&](const auto& other) { return other.second == vote.mapped(); });
  const auto first = unanswered_.find(vote.mapped());
  if (!again && first != unanswered_.end() && first->second == link) unanswered_.erase(first);
}

void SimulatedNodeWorker::heard(std::uint64_t link, std::uint64_t request, const Said& said) {
  if (link != latest_) return;
  note_answered(link, request);
  if (!current_ || request != requests_) return;
  standing_ = {said.quarantine, said.run, ClockReading{said.clock, sent_, process_.read_clock()}};
  if (step_ == Step::answer && said.remembered_run != said.run) {
    doubtful_ = said;
    step_ = Step::record_process;
    return send(RecordProcess{said.run, said.always});
  }
  if (step_ == Step::record_process && said.quarantine > milliseconds(0)) {
    const auto* vote_asked = std::get_if<Vote>(&current_->request);
    const Response before = response_of(*doubtful_);
    const auto* answer = std::get_if<Answer>(&before);
    const bool granted = answer != nullptr && std::holds_alternative<Grant>(*answer);
    if (vote_asked != nullptr && granted) {
      step_ = Step::release;
      return send(WireRelease{vote_asked->claim.token, {false, true, milliseconds(0)}});
    }
  }
  if (step_ == Step::release) {
    Refusal refusal;
    refusal.ask_again_in = said.quarantine;
    return conclude(Answer(refusal));
  }
  answered(step_ == Step::record_process ? *doubtful_ : said);
}

void SimulatedNodeWorker::answered(const Said& said) {
  if (const auto* release = std::get_if<Release>(&current_->request)) {
    unanswered_.erase(release->claim.token);
  }
  last_answer_ = {sent_, said.clock, latest_};
  Response response = response_of(said);
  const auto* vote = std::get_if<Vote>(&current_->request);
  const auto* answer = std::get_if<Answer>(&response);
  if (vote != nullptr && vote->ask.wait && std::holds_alternative<Refusal>(*answer)) {
    listening_ = vote->claim.token;
  }
  conclude(std::move(response));
}

Response SimulatedNodeWorker::response_of(const Said& said) const {
  if (const auto* answer = std::get_if<std::variant<Granted, Refused>>(&said.answer)) {
    if (const auto* granted = std::get_if<Granted>(answer)) return Answer(grant_of(*granted));
    Refusal refusal = refusal_of(std::get<Refused>(*answer), said.clock);
    if (said.quarantine > milliseconds(0)) refusal.ask_again_in = said.quarantine;
    return Answer(std::move(refusal));
  }
  if (const auto* granted = std::get_if<std::optional<Granted>>(&said.answer)) {
    return *granted ? Renewed{grant_of(**granted)} : Renewed{};
  }
  return ReleaseResult{std::get<Released>(said.answer)};
}

void SimulatedNodeWorker::conclude(Response response) {
  const auto number = current_->number;
  current_.reset();
  doubtful_.reset();
  say(number, std::move(response));
  begin_next();
}

void SimulatedNodeWorker::fail(const char* why) {
  conclude(Error(ErrorKind::unavailable, server_.name() + ": " + why));
}

void SimulatedNodeWorker::told(std::uint64_t link, const Message& message) {
  if (link != latest_ || !listening_ || current_) return;
  say(0, wake_of(message));
}

Wake SimulatedNodeWorker::wake_of(const Message& message) const {
  const auto now = process_.read_clock();
  if (const auto* next = std::get_if<NextMessage>(&message)) {
    return Wake{Wake::Reason::changed, later(now, next->in)};
  }
  const auto& told = std::get<GrantMessage>(message);
  const auto after = told.now - last_answer_.server_clock;
  const bool clock_went_on = after >= microseconds(0) && after <= now - last_answer_.sent;
  if (last_answer_.link != latest_ || !clock_went_on) return Wake{Wake::Reason::granted, {}};
  const auto span = std::chrono::floor<milliseconds>(after) + told.lease;
  const auto until = std::min(valid_until(last_answer_.sent, span), later(now, told.lease));
  return Wake{Wake::Reason::granted, {}, Grant{told.fence, Lease{told.lease, until}, false}};
}

void SimulatedNodeWorker::say(std::uint64_t number, Response response) {
  if (left_) return;
  inbox_.push_back({{node_, number, standing_, std::move(response)}, sent_});
  process_.wake();
}

void SimulatedNodeWorker::leave() {
  left_ = true;
  if (process_.killed()) return close_link(World::here().chance().one_in(3));
  for (Task& task : tasks_) {
    if (!task.is_release()) continue;
    current_ = std::move(task);
    send_current();
  }
  close_link();
}

}  // namespace dlock::sim
