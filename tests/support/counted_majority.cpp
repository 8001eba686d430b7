#include "support/counted_majority.hpp"

#include <memory>
#include <utility>

#include "quorum/node_clients.hpp"
#include "quorum/quorum_store.hpp"
#include "redis/redis_store.hpp"

namespace dlock::test {
namespace {

class CountingNodeClients final : public NodeClients {
 public:
  CountingNodeClients(OpenMembers open, Exchanges& exchanges)
      : nodes_(std::move(open)), exchanges_(exchanges) {}

  std::size_t size() const override { return nodes_.size(); }
  std::string name(std::size_t member) const override { return nodes_.name(member); }
  std::uint64_t ask(std::size_t member, NodeRequest request, Deadline deadline) override {
    exchanges_.asked(member, request);
    return nodes_.ask(member, std::move(request), deadline);
  }
  bool has_sent_releases(std::size_t member) const override {
    return nodes_.has_sent_releases(member);
  }
  std::optional<NodeReply> hear(Deadline until, int cancel_fd) override {
    auto heard = nodes_.hear(until, cancel_fd);
    if (heard) exchanges_.heard(*heard);
    return heard;
  }
  void begin_anew() override { nodes_.begin_anew(); }

 private:
  ThreadedNodeClients nodes_;
  Exchanges& exchanges_;
};

}  // namespace

StorePtr counted_majority(const std::vector<Address>& servers, Exchanges& exchanges) {
  const auto open = [servers] {
    std::vector<std::unique_ptr<Member>> members;
    for (const Address& each : servers) {
      Endpoint endpoint;
      endpoint.socket_path = each.path;
      endpoint.host = "127.0.0.1";
      endpoint.port = each.port;
      members.push_back(std::make_unique<RedisMember>(endpoint));
    }
    return members;
  };
  return std::make_unique<QuorumStore>(std::make_unique<CountingNodeClients>(open, exchanges));
}

}  // namespace dlock::test
