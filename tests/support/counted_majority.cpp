#include "support/counted_majority.hpp"

#include <memory>
#include <utility>

#include "quorum/quorum_store.hpp"
#include "quorum/threaded_council.hpp"
#include "redis/redis_member.hpp"

namespace dlock::test {
namespace {

class CountingCouncil final : public Council {
 public:
  CountingCouncil(OpenMembers open, Exchanges& exchanges)
      : council_(std::move(open)), exchanges_(exchanges) {}

  std::size_t size() const override { return council_.size(); }
  std::string name(std::size_t member) const override { return council_.name(member); }
  std::uint64_t ask(std::size_t member, Inquiry inquiry, Deadline deadline) override {
    exchanges_.asked(member, inquiry);
    return council_.ask(member, std::move(inquiry), deadline);
  }
  std::optional<Heard> hear(Deadline until, int interrupt_fd) override {
    auto heard = council_.hear(until, interrupt_fd);
    if (heard) exchanges_.heard(*heard);
    return heard;
  }
  void begin_anew() override { council_.begin_anew(); }

 private:
  ThreadedCouncil council_;
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
      members.push_back(std::make_unique<RedisMember>(endpoint, "dlock:"));
    }
    return members;
  };
  return std::make_unique<QuorumStore>(std::make_unique<CountingCouncil>(open, exchanges));
}

}  // namespace dlock::test
