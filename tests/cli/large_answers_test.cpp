// An etcd with more than dlock takes in one answer.

#include <doctest/doctest.h>

#include <string>

#include "cli/etcd.hpp"
#include "cli/place.hpp"
#include "etcd/base64.hpp"
#include "support/one_of_tries.hpp"

namespace dlock::test {
namespace {

TEST_CASE("large answers: keys of others with large values do not spoil the list of locks") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto put = [&](const std::string& key, std::size_t bytes) {
    etcd.ask("kv/put", {{"key", to_base64(key)}, {"value", to_base64(std::string(bytes, 'x'))}});
  };
  // Together they are too large for one answer, and the last one is by itself: the largest that
  // etcd takes.
  for (int i = 0; i < 12; ++i) put("dlock:k:b" + std::to_string(i), 200'000);
  put("dlock:k:c", 500'000);
  put("dlock:k:z", 1'572'700);
  for (const char* key : {"a", "bb", "d"}) {
    REQUIRE(dlock_at(etcd.url(), {"acquire", "-t", "60s", key}).exit_code == 0);
  }
  const ProcessOptions options = at(etcd.url());
  Result listed;
  // A busy machine may take longer for some twenty megabytes than inspect waits.
  in_one_of(10, [&] { return (listed = dlock({"inspect", "--json"}, options)).exit_code == 0; });
  CAPTURE(listed.err);
  CHECK(listed.exit_code == 0);
  for (const char* key : {"\"a\"", "\"bb\"", "\"d\""}) CHECK(holds(listed.out, key));
  CHECK(dlock({"inspect", "c"}, options).exit_code == 65);
  const auto named = dlock({"inspect", "z"}, options);
  CHECK(named.exit_code == 69);
  CHECK(is_one_message(named.err));
  CHECK(holds(named.err, "an answer that is too large"));
}

}  // namespace
}  // namespace dlock::test
