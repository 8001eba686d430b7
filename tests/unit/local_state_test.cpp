#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string_view>

#include "cas/open_record.hpp"
#include "local/file_names.hpp"
#include "local/key_file.hpp"
#include "rule/lock_table.hpp"
#include "rule/table_format.hpp"
#include "unit/error_of.hpp"

using namespace dlock;

namespace {

constexpr std::uint64_t boot = 77;

void put(std::string& file, std::string_view bytes, std::size_t offset) {
  if (file.size() < offset + bytes.size()) file.resize(offset + bytes.size());
  file.replace(offset, bytes.size(), bytes);
}

std::optional<StoredState> state_of(std::string_view file, std::uint64_t this_boot = boot) {
  const auto read = [&](const Region& region) {
    return file.substr(std::min<std::size_t>(region.offset, file.size()), region.length);
  };
  return read_state(read, this_boot);
}

/// Writes a state as KeyFile does, cut after `most` bytes as by a kill; returns its full size.
std::size_t write_state(std::string& file, std::string_view body, std::size_t most = SIZE_MAX) {
  const auto state = state_of(file);
  REQUIRE(state);
  const Slot next = next_slot(state->slot, body, std::nullopt, boot);
  const std::size_t of_body = std::min(most, body.size());
  if (of_body > 0) put(file, body.substr(0, of_body), next.body.offset);
  const std::size_t of_slot = std::min(most - of_body, sizeof(Slot));
  if (of_slot > 0) put(file, next.bytes().substr(0, of_slot), next.offset());
  return body.size() + sizeof(Slot);
}

std::string body_of(const std::string& file) {
  const auto state = state_of(file);
  REQUIRE(state);
  return std::string(state->body);
}

LockTable full_table() {
  LockTable table;
  HoldEntry hold;
  hold.token.text = "a/b:12";
  hold.owner.text = "a/b";
  hold.flag = Flag::cooldown;
  hold.at = microseconds(1);
  hold.since = microseconds(2);
  hold.lease = milliseconds(3);
  hold.ttl = milliseconds(4);
  hold.min_hold = milliseconds(5);
  hold.limit = no_limit;
  hold.fence.value = 6;
  hold.who = Who{"host", 7, "us er", "-", "label\n%\xff"};
  hold.backing = HolderIdentity{true, {8, 9, 10}, {11, 12, 13}, ".wait-x"};
  table.holds.push_back(hold);
  WaiterEntry waiter;
  waiter.token.text = "w";
  waiter.owner.text = "w";
  waiter.ticket.value = 14;
  waiter.seen = microseconds(-15);
  waiter.ttl = milliseconds(16);
  waiter.min_hold = milliseconds(17);
  waiter.who.label = "";
  table.queue.push_back(waiter);
  table.last_fence.value = 18;
  table.last_ask = microseconds(19);
  table.last = LastGrant{Who{"h", 20, "u", "c", ""}, WallTime(microseconds(21)), Fence{22}};
  table.latest = LatestClaim{Ticket{23}, Token{"t"}, Owner{"o"}, Who{"h", 24, "u", "c", "l"}};
  return table;
}

}  // namespace

TEST_CASE(
    "a hold is shown to end no earlier than it began, though the clock of its end was behind") {
  LockTable table;
  table.last = LastGrant{Who{}, WallTime(microseconds(21)), Fence{22}};
  note_end(table, Fence{22}, {WallTime(microseconds(20)), 3});
  const auto last = recent_grant(table, {});
  REQUIRE((last && last->end));
  CHECK(last->end->at == last->acquired_at);
  CHECK(last->end->exit_code == 3);
}

TEST_CASE("a hold with a flag of a later version is refused, in a file and in a record") {
  const LockKey key{"key"};
  for (std::string text : {table_text(key, full_table()), record_text(key, full_table())}) {
    text.replace(text.find(" k "), 3, " x ");
    const auto read = text.starts_with("dlock-table") ? parse_table : parse_record;
    CHECK(test::error_kind_of([&] { read(text, "k"); }) == ErrorKind::wrong_data);
  }
}

TEST_CASE("a state survives a writer killed after any byte") {
  const std::vector<std::string> bodies{
      "one", std::string(500, 'b'), "3", std::string(90, 'd'), std::string(2000, 'e'), "six", ""};
  std::string file;
  std::string before;
  for (const std::string& body : bodies) {
    const std::size_t whole = body.size() + sizeof(Slot);
    // The kernel writes the few bytes of a slot as one, which counts where there is no other slot.
    const std::size_t cut = file.empty() ? body.size() + 1 : whole;
    for (std::size_t most = 0; most < cut; ++most) {
      std::string torn = file;
      write_state(torn, body, most);
      const std::string seen = body_of(torn);
      CHECK((seen == before || seen == body));
      write_state(torn, "after");
      CHECK(body_of(torn) == "after");
    }
    CHECK(write_state(file, body) == whole);
    CHECK(body_of(file) == body);
    before = body;
  }
}

TEST_CASE("a damaged last write gives the state before it, never a wrong one") {
  std::string file;
  write_state(file, "the first");
  write_state(file, "the second");
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const std::string seen = body_of(damaged);
    CHECK((seen == "the first" || seen == "the second"));
  }
}

TEST_CASE("what was damaged or never ours is not taken for an empty state") {
  std::string file;
  write_state(file, "the only");
  for (const std::size_t at : {0u, 9u, 72u, 162u}) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    CHECK(!state_of(damaged));
  }
  CHECK(!state_of("#!/bin/sh\n"));
  CHECK(!state_of(std::string(4096, 'x')));
}

TEST_CASE("a body torn by a power cut before this boot reads as nothing written") {
  std::string file;
  write_state(file, "the only");
  file[162] = 'X';
  const auto state = state_of(file, boot + 1);
  REQUIRE(state);
  CHECK(state->slot.sequence == 0);
  CHECK(!state_of(file, 0));
}

TEST_CASE("a file does not grow for ever with its writes") {
  std::string file;
  for (std::size_t i = 0; i < 1000; ++i) write_state(file, std::string(300 + i % 200, 'x'));
  CHECK(file.size() < 2500);
}

TEST_CASE("the next state and its tail are apart from the current ones, and take little room") {
  const auto apart = [](const Region& one, const Region& other) {
    return one.end() <= other.offset || other.end() <= one.offset;
  };
  std::mt19937 random(11);
  Slot current;
  for (int i = 0; i < 1000; ++i) {
    const std::string body(1 + random() % 900, 'b');
    std::optional<std::string> tail;
    if (i == 0 || random() % 3 == 0) tail = std::string(1 + random() % 9000, 't');
    const Slot next = next_slot(current, body, tail, boot);
    CHECK(next.body.offset >= 2 * sizeof(Slot));
    CHECK(next.body.length == body.size());
    CHECK(apart(next.body, current.body));
    CHECK(apart(next.body, current.tail));
    CHECK(apart(next.body, next.tail));
    if (tail) {
      CHECK(next.tail.length == tail->size());
      CHECK(apart(next.tail, current.body));
      CHECK(apart(next.tail, current.tail));
    } else {
      CHECK(next.tail.offset == current.tail.offset);
      CHECK(next.tail.hash == current.tail.hash);
    }
    CHECK(next.tail.end() < 40'000);
    CHECK(next.body.end() < 40'000);
    current = next;
  }
}

TEST_CASE("a table is read back as it was written") {
  const auto named = parse_table(table_text({"k \n%\xc3\xa9"}, full_table()), "file");
  CHECK(named.key.text == "k \n%\xc3\xa9");
  CHECK(named.table == full_table());
}

TEST_CASE("the waiters that a table's text leaves out are lines of their own") {
  LockTable table = full_table();
  for (int i = 1; i < 5; ++i) {
    table.queue.push_back(table.queue.front());
    table.queue.back().token.text += std::to_string(i);
  }
  NamedTable named = parse_table(table_text({"k"}, table, 2), "file");
  CHECK(named.table.queue.size() == 2);
  const std::string lines = waiter_lines(table, 2);
  parse_waiters(lines, "file", named.table);
  CHECK(named.table == table);
  CHECK_THROWS_AS(parse_waiters("wait x\n", "file", named.table), Error);
  CHECK_THROWS_AS(parse_waiters(lines.substr(0, 9), "file", named.table), Error);
}

TEST_CASE("a text that is not wholly a table is refused") {
  const std::string text = table_text({"k"}, full_table());
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    CHECK_THROWS_AS(parse_table(text.substr(0, cut), "file"), Error);
  }
  CHECK_THROWS_AS(parse_table(text + "x\n", "file"), Error);
  std::string other_version = text;
  other_version.replace(0, 13, "dlock-table 2");
  CHECK_THROWS_AS(parse_table(other_version, "file"), Error);
  std::string wrong_number = text;
  wrong_number.replace(wrong_number.find("fence 18"), 8, "fence x8");
  CHECK_THROWS_AS(parse_table(wrong_number, "file"), Error);
}

TEST_CASE("a time or a lease that no clock can have told is refused, and not reckoned with") {
  const auto is_refused = [](const auto& spoil) {
    LockTable table = full_table();
    spoil(table);
    const auto read = [&] { parse_record(record_text({"k"}, table), "record"); };
    return test::error_kind_of(read) == ErrorKind::wrong_data;
  };
  CHECK(!is_refused([](LockTable&) {}));
  CHECK(is_refused([](LockTable& table) { table.holds[0].at = microseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].at = microseconds::min(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].since = microseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].lease = milliseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].lease = milliseconds(-1); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].ttl = milliseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].min_hold = milliseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.holds[0].fence.value = INT64_MAX; }));
  CHECK(is_refused([](LockTable& table) { table.queue[0].ticket.value = INT64_MAX; }));
  CHECK(is_refused([](LockTable& table) { table.queue[0].seen = microseconds::min(); }));
  CHECK(is_refused([](LockTable& table) { table.queue[0].told = microseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.queue[0].ttl = milliseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.latest->ticket.value = INT64_MAX; }));
  CHECK(is_refused([](LockTable& table) { table.last_fence.value = INT64_MAX; }));
  CHECK(is_refused([](LockTable& table) { table.last_ask = microseconds::max(); }));
  CHECK(is_refused([](LockTable& table) { table.last->acquired_at = WallTime::max(); }));
  Snapshot latch;
  latch.text = "dlock-latch 1 2 " + std::to_string(INT64_MAX) + " 5f closed\n";
  CHECK_THROWS_AS(latch_in(latch, "record"), Error);
}

TEST_CASE("a lease of any length has an end") {
  const Deadline now = BootClock::now();
  CHECK(valid_until(now, milliseconds::max()) > later(now, std::chrono::hours(1)));
  CHECK(valid_until(now, milliseconds::min()) < now);
}

TEST_CASE("every key has a file name of its own that says which key it is") {
  std::set<std::string> names;
  std::vector<std::string> keys{"nightly", "a/b",      "a%2Fb",   ".", "..", ".hidden",
                                "a b",     "\x1b]0;x", "}{*?",    "~", "%",  "%25",
                                "A",       "\xc3\xa9", "x.dlock", "-", "a~b"};
  for (const std::size_t size : {199u, 200u, 201u, 511u, 512u}) {
    keys.push_back(std::string(size, 'k'));
    keys.push_back(std::string(size - 1, 'k') + "l");
    keys.push_back(std::string(size, '/'));
  }
  for (const std::string& key : keys) {
    const std::string name = key_file_name({key});
    CHECK(names.insert(name).second);
    CHECK(name.size() <= 255);
    CHECK(name.find('/') == std::string::npos);
    CHECK(name.front() != '.');
    CHECK(is_key_file_name(name));
    const auto back = key_of_file_name(name);
    if (back) CHECK(back->text == key);
    if (key.size() < 60) CHECK(back);
  }
  CHECK(key_file_name({"nightly"}) == "nightly.dlock");
  CHECK(!key_of_file_name("notes.txt"));
  CHECK(!key_of_file_name(".dlock"));
}
