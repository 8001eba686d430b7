// An eviction whose answer is lost, on a compare-and-set engine.

#include "base/error.hpp"
#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "sql/database.hpp"
#include "support/postgres_server.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

/// Loses the answer to the next successful write; `after_lost` runs before the client asks again.
class AnswerLost final : public CasBackend {
 public:
  explicit AnswerLost(std::unique_ptr<CasBackend> place) : place_(std::move(place)) {}

  std::function<void()> after_lost;

  Snapshot read(const std::string& name, OwnLife* own, const CallOptions& call_options) override {
    return place_->read(name, own, call_options);
  }
  std::variant<Version, Snapshot> write(const std::string& name, const Snapshot& over,
                                        const Update& update,
                                        const CallOptions& call_options) override {
    auto written = place_->write(name, over, update, call_options);
    if (!after_lost) return written;
    std::exchange(after_lost, {})();
    throw Error(ErrorKind::unavailable, "the answer was lost");
  }
  RecordPage list(const std::string& prefix, const std::string& after,
                  const CallOptions& call_options) override {
    return place_->list(prefix, after, call_options);
  }
  std::int64_t count(const std::string& prefix, const CallOptions& call_options) override {
    return place_->count(prefix, call_options);
  }
  void sweep(const std::string& prefix, const std::string& after,
             const CallOptions& call_options) override {
    place_->sweep(prefix, after, call_options);
  }
  std::variant<std::string, Wake::Reason> watch(RecordWatch& watch, Deadline until,
                                                int cancel_fd) override {
    return place_->watch(watch, until, cancel_fd);
  }
  void close() override { place_->close(); }
  std::string name() const override { return place_->name(); }

 private:
  std::unique_ptr<CasBackend> place_;
};

}  // namespace

TEST_CASE(
    "PostgreSQL: an eviction repeated after its answer was lost evicts nobody who came since") {
  if (is_missing<PostgresServer>()) return;
  PostgresServer server;
  const auto place = [&] { return open_postgres(server.url(), "postgres"); };
  auto losing = std::make_unique<AnswerLost>(place());
  AnswerLost& net = *losing;
  CasStore operator_side(std::move(losing), "dlock:"), holder(place(), "dlock:"),
      waiter(place(), "dlock:");
  const Claim held = claim_on("k");
  Claim next = claim_on("k");
  granted(holder, held);
  queue_up(waiter, next);
  net.after_lost = [&] { CHECK(let_in(waiter, next)); };
  const auto evicted = operator_side.evict(held.key, {std::nullopt, evictor}, soon());
  REQUIRE(evicted.size() == 1);
  CHECK(evicted[0].owner == held.owner.text);
  CHECK_FALSE(renew(holder, held));
  CHECK(renew(waiter, next));
  CHECK(release(waiter, next) == Released::yes);
}

}  // namespace dlock::test
