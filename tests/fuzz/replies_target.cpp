// Reads what a server may send: the bytes of replies, however they are cut, by all code that reads
// them.

#include <memory>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "fuzz/fuzz.hpp"
#include "redis/cluster_router.hpp"
#include "redis/entry_format.hpp"
#include "redis/redis_store.hpp"
#include "redis/reply.hpp"

namespace dlock::fuzz {
namespace {

/// A server with one reply to everything.
class Parrot final : public RedisTransport {
 public:
  explicit Parrot(const Reply& reply) : reply_(reply) {}

  ScriptReply run_script(const ScriptRun&, const CallOptions&) override { return {reply_}; }
  std::vector<Reply> read(const std::vector<std::string>&, const std::vector<Request>& requests,
                          const CallOptions&) override {
    return std::vector<Reply>(requests.size(), reply_);
  }
  std::variant<std::string, Wake::Reason> next_message(const std::string&, Deadline, int) override {
    return Wake::Reason::due;
  }
  void visit_all(const CallOptions&, const Visit&) override {}
  bool was_reached() const override { return true; }
  std::string name() const override { return "server"; }

 private:
  const Reply& reply_;
};

/// The replies in bytes that arrive in steps, and whether they end in an Error.
struct Heard {
  std::vector<Reply> replies;
  bool refused = false;
};

Heard hear(std::string_view bytes, std::size_t step) {
  Heard heard;
  allow_errors([&] {
    heard.refused = true;
    ReplyReader reader;
    while (!bytes.empty()) {
      reader.feed(bytes.substr(0, step));
      bytes.remove_prefix(std::min(step, bytes.size()));
      while (auto reply = reader.next()) heard.replies.push_back(std::move(*reply));
    }
    heard.refused = false;
  });
  return heard;
}

bool is_same(const Reply& a, const Reply& b) {
  if (a.kind != b.kind || a.text != b.text || a.integer != b.integer) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), is_same);
}

/// Reads a reply as everything that it may be taken for.
void read_as_anything(const Reply& reply) {
  const NodeAddress asked{"node", 6379};
  allow_errors([&] {
    SlotMap map;
    map.learn(reply, asked);
    for (int slot = 0; slot < 16384; slot += 1000) map.owner(slot);
    promise(map.unserved() >= 0, "no more slots are served than there are");
    for (const NodeAddress& node : map.nodes()) {
      promise(announced(node.host, std::to_string(node.port)).has_value() || node == asked,
              "a Cluster's node has the name of a host", node.host);
    }
  });
  const auto redirection = redirection_in(reply);
  if (redirection && !redirection->to.host.empty()) {
    const auto& [host, port] = redirection->to;
    promise(announced(host, std::to_string(port)).has_value(),
            "a redirection leads to what can be a host", host);
  }
  allow_errors([&] { refusal_from(in_items(reply)); });
  for (const std::size_t first : {0U, 1U, 3U}) {
    allow_errors([&] { holders_from(reply, first, 1); });
  }
  RedisStore store(std::make_unique<Parrot>(reply), RedisStoreOptions{});
  allow_errors([&] { store.inspect({{LockKey{"k"}}, {}}, {}); });
}

}  // namespace

void try_input(std::string_view input) {
  Pieces pieces(input);
  const std::size_t step = 1 + pieces.byte();
  const Heard whole = hear(pieces.rest(), input.size() + 1);
  const Heard in_steps = hear(pieces.rest(), step);
  promise(whole.refused == in_steps.refused, "what is no reply is refused however it arrives");
  promise(std::equal(whole.replies.begin(), whole.replies.end(), in_steps.replies.begin(),
                     in_steps.replies.end(), is_same),
          "a reply is the same however it arrives");
  for (const Reply& reply : whole.replies) read_as_anything(reply);
}

}  // namespace dlock::fuzz
