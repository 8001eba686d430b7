#include "commands/tracing_store.hpp"

#include <unistd.h>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/escape.hpp"
#include "base/wait.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// How long a step took, behind what was done.
class Taken {
 public:
  std::string text() const { return " in " + exact_duration(BootClock::now() - begun_); }

 private:
  Deadline begun_ = BootClock::now();
};

std::string answer_text(const Answer& answer, bool waits) {
  if (const auto* grant = std::get_if<Grant>(&answer)) {
    const bool leased = grant->lease.valid_until != never;
    return "granted" + fence_text(grant->fence) +
           (leased ? ", lease " + human_duration(grant->lease.length) : "");
  }
  const auto& refusal = std::get<Refusal>(answer);
  if (refusal.why != Refusal::Reason::held) return "refused";
  std::string held =
      "held by " + std::to_string(refusal.holders) + (refusal.holders == 1 ? " owner" : " owners");
  if (!waits) return held;
  const std::string place =
      refusal.unordered ? "" : "place " + std::to_string(refusal.ahead + 1) + ", ";
  return place + held + ", asking again in " + human_duration(refusal.ask_again_in) +
         " at the latest";
}

class TracingStore final : public Store {
 public:
  TracingStore(StorePtr store, const Log& log) : store_(std::move(store)), log_(log) {}

  Answer acquire(const Claim& claim, const Ask& ask, const CallOptions& call_options) override {
    const Taken taken;
    auto answer = store_->acquire(claim, ask, call_options);
    tell("asked " + name() + " for " + escaped(claim.key.text) + taken.text() + ": " +
         answer_text(answer, ask.wait));
    return answer;
  }
  Wake sleep(const Claim& claim, Deadline until, int cancel_fd) override {
    const Taken taken;
    Wake wake = store_->sleep(claim, until, cancel_fd);
    const std::string key = escaped(claim.key.text);
    if (wake.why == Wake::Reason::granted) tell("told that " + key + " is ours" + taken.text());
    if (wake.why == Wake::Reason::changed)
      tell("told that " + key + " may be free earlier" + taken.text());
    return wake;
  }
  std::optional<Grant> renew(const LockKey& key, const Token& token,
                             std::optional<milliseconds> ttl,
                             const CallOptions& call_options) override {
    const Taken taken;
    auto grant = store_->renew(key, token, ttl, call_options);
    if (grant) tell(kept_text(key, *grant) + taken.text());
    return grant;
  }
  std::optional<Grant> renew_hold(const Claim& claim, Fence fence,
                                  const CallOptions& call_options) override {
    const Taken taken;
    auto grant = store_->renew_hold(claim, fence, call_options);
    if (grant) tell(kept_text(claim.key, *grant) + taken.text());
    return grant;
  }
  milliseconds longest_sleep_near_head() const override {
    return store_->longest_sleep_near_head();
  }
  void renewed_by_other_connection(const Claim& claim) override {
    store_->renewed_by_other_connection(claim);
  }
  Released release(const LockKey& key, const Token& token, ReleaseMode mode,
                   const CallOptions& call_options) override {
    const Taken taken;
    const auto released = store_->release(key, token, mode, call_options);
    const std::string what = released == Released::yes          ? "released "
                             : released == Released::left_queue ? "left the queue of "
                                                                : "did not hold ";
    tell(what + escaped(key.text) + taken.text());
    return released;
  }
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override {
    const Taken taken;
    auto thrown_out = store_->evict(key, fence, by, call_options);
    tell("asked " + name() + " to free " + escaped(key.text) + taken.text());
    return thrown_out;
  }
  std::optional<Who> evicted_by(const LockKey& key, const Token& token) const override {
    return store_->evicted_by(key, token);
  }
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override {
    const Taken taken;
    auto states = store_->inspect(query, call_options);
    tell("asked " + name() + " how things stand" + taken.text());
    return states;
  }
  bool command_started(const Claim& claim, pid_t group) override {
    return store_->command_started(claim, group);
  }
  bool live_with(const Claim& claim, pid_t pid) override { return store_->live_with(claim, pid); }
  void rest() override { store_->rest(); }
  void before_fork() override { store_->before_fork(); }
  void leave_to(pid_t pid) override { store_->leave_to(pid); }
  bool needs_renewal(const Claim& claim) const override { return store_->needs_renewal(claim); }
  int news_fd() const override { return store_->news_fd(); }
  void take_news() override { store_->take_news(); }
  std::optional<QuorumMargin> margin(const Claim& claim) override { return store_->margin(claim); }
  std::vector<Error> take_troubles() override { return store_->take_troubles(); }
  Fd changes() override { return store_->changes(); }
  std::string name() const override { return store_->name(); }

 private:
  static std::string kept_text(const LockKey& key, const Grant& grant) {
    if (grant.lease.valid_until == never) return "found " + escaped(key.text) + " still ours";
    return "renewed " + escaped(key.text) + " for " + human_duration(grant.lease.length);
  }

  void tell(const std::string& text) const { tell_step(log_, text); }

  StorePtr store_;
  const Log log_;
};

}  // namespace

void tell_step(const Log& log, const std::string& text) {
  pollfd reader[] = {{STDERR_FILENO, POLLOUT, 0}};
  if (poll_until(reader, BootClock::now()) > 0) log.detail(text);
}

StorePtr told(StorePtr store, const Log& log) {
  return std::make_unique<TracingStore>(std::move(store), log);
}

}  // namespace dlock
