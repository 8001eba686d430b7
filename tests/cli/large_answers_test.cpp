// An etcd with large values of others among the locks.

#include <doctest/doctest.h>

#include <string>

#include "cli/etcd.hpp"
#include "cli/place.hpp"
#include "etcd/etcd_json.hpp"
#include "support/one_of_tries.hpp"

namespace dlock::test {
namespace {

TEST_CASE("large answers: keys of others with large values do not spoil the list of locks") {
  if (is_missing<EtcdServers>()) return;
  EtcdServers etcd;
  const auto put = [&](const std::string& key, std::size_t bytes) {
    etcd.ask("kv/put", {{"key", to_base64(key)}, {"value", to_base64(std::string(bytes, 'x'))}});
  };
  // The last one is the largest that etcd takes.
  for (int i = 0; i < 12; ++i) put("dlock:k:b" + std::to_string(i), 200'000);
  put("dlock:k:c", 500'000);
  put("dlock:k:z", 1'572'700);
  for (const char* key : {"a", "bb", "d"}) {
    REQUIRE(dlock_at(etcd.url(), {"acquire", "-t", "60s", key}).exit_code == 0);
  }
  const ProcessOptions options = at(etcd.url());
  Result listed;
  // A busy machine may take longer for some megabytes than inspect waits.
  in_one_of(10, [&] { return (listed = dlock({"inspect", "--json"}, options)).exit_code == 0; });
  CAPTURE(listed.err);
  CHECK(listed.exit_code == 0);
  for (const char* key : {"\"a\"", "\"bb\"", "\"d\""}) CHECK(holds(listed.out, key));
  for (const char* key : {"c", "z"}) CHECK(dlock({"inspect", key}, options).exit_code == 65);
}

}  // namespace
}  // namespace dlock::test
