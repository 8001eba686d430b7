// Leases of an engine without a clock, where several stores renew one hold: the store that acquired
// it, and the store of the renewal thread while the client waits for another key.

#include "cas/cas_store.hpp"
#include "contract/engines.hpp"
#include "etcd/etcd_backend.hpp"
#include "etcd/etcd_json.hpp"
#include "support/etcd_servers.hpp"
#include "support/installed.hpp"

namespace dlock::test {
namespace {

/// The lease of the only liveness entry.
std::int64_t lease_of_life(EtcdServers& etcd) {
  std::int64_t lease = 0;
  for (const EtcdEntry& entry : etcd.entries()) {
    if (entry.key.find('\n') != std::string::npos) lease = entry.lease;
  }
  return lease;
}

}  // namespace

TEST_CASE("etcd: a store goes on with the lease to which another one has moved its hold") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto first = etcd_store(etcd.endpoints()), second = etcd_store(etcd.endpoints());
  const Claim claim = claim_on("k");
  granted(*first, claim);
  const auto lease = lease_of_life(etcd);
  CHECK(lease != 0);
  RenewalOptions longer;
  longer.ttl = 3 * long_ttl;
  REQUIRE(second->renew(claim, longer, soon()).grant);
  CHECK(lease_of_life(etcd) != lease);
  CHECK(renew(*first, claim));
  CHECK(renew(*second, claim));
  CHECK(release(*first, claim) == Released::yes);
}

TEST_CASE("etcd: a lease that it makes longer than was asked for serves all stores of a hold") {
  if (is_missing<EtcdServers>()) return;
  // The shortest lease is one and a half times as long as an election.
  EtcdServers etcd({.flags = {"--election-timeout", "5000"}});
  const auto first = etcd_store(etcd.endpoints()), second = etcd_store(etcd.endpoints());
  const Claim claim = claim_on("k", milliseconds(2000));
  granted(*first, claim);
  const auto lease = lease_of_life(etcd);
  CHECK(lease != 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(renew(*second, claim));
    CHECK(renew(*first, claim));
  }
  CHECK(lease_of_life(etcd) == lease);
  CHECK(release(*first, claim) == Released::yes);
}

TEST_CASE("etcd: a --min-hold lasts although the job ended before its hand-over was confirmed") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto holder = etcd_store(etcd.endpoints());
  auto waiter = etcd_store(etcd.endpoints());
  const Claim held = claim_on("k");
  Claim next = claim_on("k");
  next.floor = long_ttl;
  granted(*holder, held);
  queue_up(*waiter, next);
  release(*holder, held);
  REQUIRE(news(*waiter, next, Wake::Reason::granted));
  CHECK(release(*waiter, next) == Released::yes);
  waiter.reset();
  const Refusal refusal = refused(*holder, claim_on("k"));
  REQUIRE(refusal.held_by.size() == 1);
  CHECK(refusal.held_by[0].kept);
}

}  // namespace dlock::test
