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
  Renewed renew(const Claim& claim, const RenewalTerms& terms,
                const CallOptions& call_options) override {
    const Taken taken;
    auto renewed = store_->renew(claim, terms, call_options);
    if (renewed.grant) tell(kept_text(claim.key, *renewed.grant) + taken.text());
    return renewed;
  }
  ReleaseResult release(const Claim& claim, const ReleaseOptions& how,
                        const CallOptions& call_options) override {
    const Taken taken;
    auto result = store_->release(claim, how, call_options);
    const std::string what = result.outcome == Released::yes          ? "released "
                             : result.outcome == Released::left_queue ? "left the queue of "
                                                                      : "did not hold ";
    tell(what + escaped(claim.key.text) + taken.text());
    return result;
  }
  std::vector<Holder> evict(const LockKey& key, std::optional<Fence> fence, const Who& by,
                            const CallOptions& call_options) override {
    const Taken taken;
    auto evicted = store_->evict(key, fence, by, call_options);
    tell("asked " + name() + " to free " + escaped(key.text) + taken.text());
    return evicted;
  }
  std::vector<KeyState> inspect(const Query& query, const CallOptions& call_options) override {
    const Taken taken;
    auto states = store_->inspect(query, call_options);
    tell("asked " + name() + " how things stand" + taken.text());
    return states;
  }
  void suspend(Suspension why) override { store_->suspend(why); }
  std::vector<int> connections() const override { return store_->connections(); }
  HostView* host_view() override { return store_->host_view(); }
  std::vector<Error> take_troubles() override { return store_->take_troubles(); }
  bool may_be_taken_late(const Claim& claim) const override {
    return store_->may_be_taken_late(claim);
  }
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
  if (takes_a_line(STDERR_FILENO)) log.detail(text);
}

StorePtr told(StorePtr store, const Log& log) {
  return std::make_unique<TracingStore>(std::move(store), log);
}

}  // namespace dlock
