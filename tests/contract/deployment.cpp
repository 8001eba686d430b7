#include "contract/deployment.hpp"

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "contract/engines.hpp"
#include "redis/redis_store.hpp"
#include "redis/sentinel_route.hpp"
#include "support/sentinels.hpp"

namespace dlock::test {
namespace {

class OneServer final : public Deployment {
 public:
  explicit OneServer(bool by_tcp = false) : by_tcp_(by_tcp), server_({by_tcp, false, "", {}, {}}) {}

  StorePtr open() override {
    return redis_store(endpoint_at(by_tcp_ ? Address{"", server_.port()} : server_.address()));
  }
  std::vector<RedisServer*> servers() override { return {&server_}; }
  RedisServer& server_of(const LockKey&) override { return server_; }

 private:
  bool by_tcp_;
  RedisServer server_;
};

class BehindSentinels final : public Deployment {
 public:
  StorePtr open() override {
    const SentinelTarget target = fleet_.target();
    return std::make_unique<RedisStore>(
        std::make_unique<SentinelRoute>(target.sentinels, target.master_name, target.master),
        RedisTerms{"dlock:", 1, true});
  }
  std::vector<RedisServer*> servers() override { return {&fleet_.master()}; }
  RedisServer& server_of(const LockKey&) override { return fleet_.master(); }

 private:
  // A master that stands still is no dead one here.
  Sentinels fleet_{{1, 3, {}, {"sentinel down-after-milliseconds locks 600000"}, ""}};
};

template <typename Kind>
std::shared_ptr<Deployment> shared() {
  static const auto one = std::make_shared<Kind>();
  for (RedisServer* server : one->servers()) server->command({"FLUSHALL"});
  return one;
}

}  // namespace

std::shared_ptr<Deployment> new_deployment() {
  const char* variable = std::getenv("DLOCK_TEST_DEPLOYMENT");
  const std::string name = variable == nullptr ? "" : variable;
  if (name.empty()) return std::make_shared<OneServer>();
  if (name == "tcp") return std::make_shared<OneServer>(true);
  if (name == "sentinel") return shared<BehindSentinels>();
  throw Error(Trouble::usage, "no such deployment: " + name);
}

}  // namespace dlock::test
