// A Redis Cluster: where a key is, and what becomes of it while it moves.

#include "support/cluster.hpp"

#include "base/error.hpp"
#include "engines.hpp"
#include "redis/cluster_store.hpp"
#include "support/eventually.hpp"
#include "support/fake_server.hpp"

namespace dlock::test {

TEST_CASE(
    "a Cluster: keys in different slots are had from any seed, and moved under their holders") {
  const Cluster cluster;
  for (std::size_t seed = 0; seed < 3; ++seed) {
    auto store = std::make_unique<ClusterStore>(
        std::get<ClusterTarget>(parse_server_url(cluster.url({seed}))).seeds, RedisTerms{});
    for (std::size_t at = 0; at < 3; ++at) {
      const Claim claim = claim_on(Cluster::key_of(at));
      granted(*store, claim);
      CHECK_FALSE(enters(*cluster.open(), claim_on(Cluster::key_of(at))));
      CHECK(renew(*store, claim));
      CHECK(release(*store, claim) == Released::yes);
      CHECK(release(*store, claim) == Released::not_held);
    }
  }
}

}  // namespace dlock::test
