#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "redis/cluster_router.hpp"

namespace dlock {
namespace {

Reply text(const std::string& text) { return {Reply::Kind::text, text, 0, {}}; }
Reply error(const std::string& text) { return {Reply::Kind::error, text, 0, {}}; }
Reply number(std::int64_t value) { return {Reply::Kind::integer, "", value, {}}; }
Reply list(std::vector<Reply> items) { return {Reply::Kind::array, "", 0, std::move(items)}; }
Reply node(const std::string& host, std::int64_t port) {
  return list({text(host), number(port), text("id")});
}

const NodeAddress asked{"seed", 7000};

void is_refused(const Reply& reply) {
  SlotMap map;
  CHECK_THROWS_AS(map.learn(reply, asked), Error);
  CHECK(map.is_empty());
}

Redirection redirection(const std::string& text) {
  const auto found = redirection_in(error(text));
  REQUIRE(found);
  return *found;
}

void leads_to(const std::string& place, const NodeAddress& to) {
  const Redirection found = redirection("MOVED 3999 " + place);
  CHECK(found.kind == Redirection::Kind::moved);
  CHECK(found.to == to);
}

}  // namespace

TEST_CASE("the slot of a key is that of its first braces, as in the specification of Cluster") {
  CHECK(slot_of("123456789") == 0x31C3);
  CHECK(slot_of("foo") == 12182);
  CHECK(slot_of("dlock:{foo}:queue") == slot_of("foo"));
  CHECK(slot_of("{}foo") != slot_of(""));
  CHECK(slot_of("{foo") != slot_of("foo"));
  CHECK(slot_of("a{foo}{bar}") == slot_of("foo"));
}

TEST_CASE("a slot map says who has a slot, and what one of them said since goes before it") {
  SlotMap map;
  CHECK(map.is_empty());
  CHECK_FALSE(map.owner(0));
  map.learn(list({list({number(0), number(9), node("10.0.0.1", 1), node("10.0.0.2", 2)}),
                  list({number(10), number(16383), node("::1", 3)})}),
            asked);
  CHECK(map.owner(9) == NodeAddress{"10.0.0.1", 1});
  CHECK(map.owner(10) == NodeAddress{"::1", 3});
  CHECK(map.nodes().size() == 3);
  // The answer of a node that has lost its configuration.
  map.learn(list({}), asked);
  CHECK(map.owner(9) == NodeAddress{"10.0.0.1", 1});
  CHECK(map.masters().size() == 2);
  map.move(9, {"other", 4});
  CHECK(map.owner(9) == NodeAddress{"other", 4});
  CHECK(map.owner(8) == NodeAddress{"10.0.0.1", 1});
  CHECK(map.masters().size() == 3);
  map.learn(list({list({number(5), number(9), node("10.0.0.1", 1)})}), asked);
  CHECK(map.owner(9) == NodeAddress{"10.0.0.1", 1});
  CHECK_FALSE(map.owner(4));
}

TEST_CASE("a node that does not know its own host is where it was asked") {
  SlotMap map;
  map.learn(
      list({list({number(0), number(0), node("", 1)}), list({number(1), number(1), node("?", 2)}),
            list({number(2), number(2), list({Reply{}, number(3), text("id")})})}),
      asked);
  CHECK(map.owner(0) == NodeAddress{"seed", 1});
  CHECK(map.owner(1) == NodeAddress{"seed", 2});
  CHECK(map.owner(2) == NodeAddress{"seed", 3});
}

TEST_CASE("a replica that cannot be there is left out, and the map is good") {
  SlotMap map;
  map.learn(list({list({number(0), number(9), node("h", 1), node("h", 0)})}), asked);
  CHECK(map.owner(5) == NodeAddress{"h", 1});
  CHECK(map.nodes() == std::vector<NodeAddress>{{"h", 1}});
}

TEST_CASE("an answer to CLUSTER SLOTS that is none is refused whole") {
  is_refused(list({text("slots")}));
  is_refused(list({list({number(-1), number(1), node("h", 1)})}));
  is_refused(list({list({number(0), number(1), text("h:1")})}));
  is_refused(list({list({number(0), number(1), node("h", 0)})}));
}

TEST_CASE("a redirection leads to a name or an address, and to a port that can be") {
  leads_to("127.0.0.1:6381", {"127.0.0.1", 6381});
  leads_to("node-1.example:6381", {"node-1.example", 6381});
  leads_to("fe80::1:6381", {"fe80::1", 6381});
  leads_to(":6381", {"", 6381});
  const Redirection ask = redirection("ASK 3999 127.0.0.1:6381");
  CHECK(ask.kind == Redirection::Kind::ask);
  CHECK(ask.to == NodeAddress{"127.0.0.1", 6381});
  for (const char* nowhere : {"MOVED", "MOVED 1", "MOVED 1 host", "MOVED 1 host:0",
                              "MOVED 1 host:65536", "MOVED 1 host:6381x"}) {
    CAPTURE(nowhere);
    CHECK_FALSE(redirection_in(error(nowhere)));
  }
  for (const char* later :
       {"TRYAGAIN Multiple keys", "CLUSTERDOWN Hash slot not served", "LOADING"}) {
    CHECK(redirection(later).kind == Redirection::Kind::later);
  }
  CHECK_FALSE(redirection_in(error("ERR MOVED 1 host:1")));
  CHECK_FALSE(redirection_in(error("MOVEDTO 1 host:1")));
  CHECK_FALSE(redirection_in(text("MOVED 1 host:1")));
}

}  // namespace dlock
