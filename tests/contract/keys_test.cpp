// Many keys: how inspect lists them, which names are allowed, and the leftovers of old ones.

#include "base/error.hpp"
#include "contract/engines.hpp"

namespace dlock::test {
namespace {

std::vector<std::string> names(const std::vector<KeyState>& states) {
  std::vector<std::string> found;
  for (const KeyState& state : states) found.push_back(state.key.text);
  return found;
}

using Names = std::vector<std::string>;

TEST_OF_ENGINES("inspect shows exact keys first, free ones too, then what globs match by name") {
  Engine engine;
  if (!engine.lists()) return;
  const auto store = engine.open();
  for (const char* key : {"c", "a", "b/1", "b/2", "z"}) granted(*store, claim_on(key));
  const Claim freed = taken(*store, claim_on("b/0"));
  release(*store, freed);
  const auto all = store->inspect({{{"free"}, {"c"}}, {"*"}}, soon());
  CHECK(names(all) == Names{"free", "c", "a", "b/1", "b/2", "z"});
  CHECK(all[0].holders.empty());
  CHECK(all[1].holders.size() == 1);
  CHECK(names(store->inspect({{}, {"b*", "?", "b/1"}}, soon())) ==
        Names{"a", "b/1", "b/2", "c", "z"});
  CHECK(names(store->inspect({{{"z"}}, {}}, soon())) == Names{"z"});
  CHECK(store->inspect({{}, {"[xy]"}}, soon()).empty());
}

TEST_OF_ENGINES("inspect shows a key nobody holds any more but somebody still waits for") {
  Engine engine;
  if (!engine.lists()) return;
  const auto store = engine.open(), waiting = engine.open();
  const Claim held = taken(*store, claim_on("k"));
  const Claim next = claim_on("k");
  queue_up(*waiting, next);
  const auto states = store->inspect({{}, {"*"}}, soon());
  REQUIRE(states.size() == 1);
  CHECK(states[0].waiters.size() == 1);
}

TEST_OF_ENGINES("inspect groups holds by owner and numbers the waiters") {
  Engine engine;
  const auto store = engine.open();
  Claim older = claim_of("a", "k", Limit{7}), inner = claim_of("a/b", "k", Limit{5});
  older.who.command = "outer";
  inner.who.command = "inner";
  granted(*store, older);
  granted(*store, inner);
  granted(*store, claim_of("c", "k", Limit{7}));
  const auto first = engine.open(), second = engine.open();
  Claim writer = claim_of("w", "k"), reader = claim_of("r", "k", no_limit);
  writer.who.label = "the writer";
  queue_up(*first, writer);
  queue_up(*second, reader);
  const KeyState state = state_of(*store, "k");
  REQUIRE(state.holders.size() == 2);
  CHECK(state.holders[0].owner == "a");
  CHECK(state.holders[0].holds == 2);
  CHECK(state.holders[0].who.command == "outer");
  CHECK(state.holders[0].limit == Limit{5});
  CHECK(state.holders[1].owner == "c");
  CHECK(state.holders[1].holds == 1);
  REQUIRE(state.waiters.size() == 2);
  CHECK(state.waiters[0].position == 1);
  CHECK(state.waiters[0].owner == "w");
  CHECK(state.waiters[0].who == writer.who);
  CHECK(state.waiters[0].limit == exclusive);
  CHECK(state.waiters[1].position == 2);
  CHECK(state.waiters[1].owner == "r");
  CHECK(state.waiters[1].limit == no_limit);
  CHECK(state.waiters[1].waiting < std::chrono::seconds(30));
}

TEST_OF_ENGINES("a free key tells who held it last, and is in no list") {
  Engine engine;
  const auto store = engine.open();
  Claim claim = claim_on("k");
  claim.who.label = "ticket 17";
  const Fence fence = granted(*store, claim).fence;
  CHECK(!state_of(*store, "k").last);
  CHECK(release(*store, claim) == Released::yes);
  const auto last = state_of(*store, "k").last;
  REQUIRE(last.has_value());
  CHECK(last->who == claim.who);
  CHECK(last->fence == fence);
  if (engine.lists()) CHECK(store->inspect({{}, {"*"}}, soon()).empty());
  CHECK(!state_of(*store, "never-held").last);
}

TEST_OF_ENGINES("a look changes nothing") {
  Engine engine;
  const auto store = engine.open(), watcher = engine.open();
  state_of(*watcher, "k");
  if (engine.lists()) watcher->inspect({{}, {"*"}}, soon());
  CHECK(engine.litter() == "");
  Claim claim = claim_on("k", milliseconds(500));
  granted_briefly(*store, claim);
  while (!state_of(*watcher, "k").holders.empty()) {
  }
  if (engine.lists()) CHECK(watcher->inspect({{}, {"*"}}, soon()).empty());
}

const Names hostile_keys{
    "with spaces and\ttabs",
    " ",
    "}{",
    "{",
    "}",
    "{}",
    "a{b}c",
    "a%7B",
    "a{",
    "a%257B",
    "%",
    "%%",
    "%2",
    "%zz",
    "*",
    "?",
    "[a]",
    "\\",
    ".",
    "..",
    "/",
    "../../etc/passwd",
    "a/b",
    "a%2Fb",
    ".hidden",
    "-rf",
    ":queue",
    ":fence",
    "k:queue",
    "k}:queue",
    "\x1b]0;pwn\x07",
    "\x1b[31mred",
    "\x7f",
    "\xc2\x9b"
    "31m",
    "schl\xc3\xbcssel",
    "\xe2\x80\xae"
    "gnirts",
    "A",
    "a",
    std::string(512, 'x'),
    std::string(511, 'x'),
    std::string(511, 'x') + "y",
    std::string(512, ' '),
    std::string(512, '}'),
    std::string(512, '%'),
};

TEST_OF_ENGINES("hostile keys work, and no two of them are the same lock") {
  Engine engine;
  auto store = engine.open(), other = engine.open();
  std::vector<Claim> claims;
  for (const std::string& key : hostile_keys) {
    CAPTURE(key);
    REQUIRE(!key_fault(key));
    // Long enough for all of them on a busy machine.
    claims.push_back(claim_on(key, std::chrono::minutes(10)));
    CHECK(enters(*store, claims.back()));
  }
  if (engine.lists()) {
    CHECK(store->inspect({{}, {"*"}}, soon()).size() == hostile_keys.size());
  }
  for (const Claim& claim : claims) {
    CAPTURE(claim.key.text);
    const KeyState state = state_of(*store, claim.key.text);
    REQUIRE(state.holders.size() == 1);
    CHECK(state.holders[0].owner == claim.owner.text);
    Claim next = claim_on(claim.key.text);
    queue_up(*other, next);
    CHECK(renew(*store, claim).has_value());
    CHECK(release(*store, claim) == Released::yes);
    CHECK(let_in(*other, next));
    CHECK(release(*other, next) == Released::yes);
    CHECK(state_of(*store, claim.key.text).holders.empty());
  }
  store.reset();
  other.reset();
  CHECK(engine.litter() == "");
}

TEST_OF_ENGINES("nothing is left of locks, queues and clients but what keeps the fence") {
  Engine engine;
  for (int round = 0; round < 3; ++round) {
    const auto store = engine.open(), waiting = engine.open(), leaving = engine.open();
    const Claim held = taken(*store, claim_on("k")), inner = claim_of(held.owner.text + "/i", "k");
    granted(*store, inner);
    Claim next = claim_on("k"), never_had = claim_on("k");
    queue_up(*waiting, next);
    queue_up(*leaving, never_had);
    CHECK(release(*leaving, never_had) == Released::left_queue);
    release(*store, held);
    release(*store, inner);
    CHECK(let_in(*waiting, next));
    CHECK(release(*waiting, next) == Released::yes);
  }
  CHECK(engine.litter() == "");
}

}  // namespace
}  // namespace dlock::test
