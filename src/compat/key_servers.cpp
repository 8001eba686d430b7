#include "compat/key_servers.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/escape.hpp"
#include "redis/server_error.hpp"
#include "redis/slot_map.hpp"

namespace dlock {
namespace {

class OneServer final : public KeyServers {
 public:
  OneServer(std::unique_ptr<EndpointResolver> route, RedisTerms terms)
      : client_(std::move(route), std::move(terms)) {}

  bool at(const std::string&, const CallOptions& call_options, const Visit& visit) override {
    visit(client_, call_options);
    return false;
  }
  void at_each(const CallOptions& call_options, const Visit& visit) override {
    visit(client_, call_options);
  }
  bool is_cluster() const override { return false; }
  bool was_reached() const override { return client_.links() > 0; }
  std::string name() const override { return client_.server_name(); }

 private:
  RedisClient client_;
};

class ClusterServers final : public KeyServers {
 public:
  ClusterServers(std::vector<Endpoint> seeds, RedisTerms terms)
      : router_(std::move(seeds), [terms = std::move(terms)](const Endpoint& node) {
          return std::make_unique<RedisClient>(std::make_unique<FixedEndpoint>(node), terms);
        }) {}

  bool at(const std::string& key, const CallOptions& call_options, const Visit& visit) override {
    return router_.at_slot(slot_of(key), call_options, visit);
  }
  void at_each(const CallOptions& call_options, const Visit& visit) override {
    router_.at_each_master(call_options, visit);
  }
  bool is_cluster() const override { return true; }
  bool was_reached() const override { return router_.was_reached(); }
  std::string name() const override { return router_.name(); }

 private:
  ClusterRouter router_;
};

}  // namespace

std::unique_ptr<KeyServers> one_server(std::unique_ptr<EndpointResolver> route, RedisTerms terms) {
  return std::make_unique<OneServer>(std::move(route), std::move(terms));
}

std::unique_ptr<KeyServers> cluster_servers(std::vector<Endpoint> seeds, RedisTerms terms) {
  terms.may_move = terms.cluster = true;
  return std::make_unique<ClusterServers>(std::move(seeds), std::move(terms));
}

void check_reply(const RedisClient& client, const std::string& key, const Reply& reply,
                 const std::function<std::string()>& seems) {
  if (!reply.is_error()) return;
  const std::string begin = client.server_name() + ": ";
  if (is_of_class(reply, "WRONGTYPE")) {
    throw Error(ErrorKind::wrong_data, begin + escaped(key) + ": " + seems());
  }
  const Error error = server_error(reply);
  client.throw_error(reply, error, begin + error.what());
}

}  // namespace dlock
