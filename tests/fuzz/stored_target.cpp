// Reads what anybody may have written on a server: the entries of locks, waiters and latches.

#include <string>

#include "base/text.hpp"
#include "cas/open_record.hpp"
#include "fuzz/fuzz.hpp"
#include "redis/cluster_router.hpp"
#include "redis/entry_format.hpp"
#include "rule/table_format.hpp"

namespace dlock::fuzz {
namespace {

constexpr std::int64_t now = 1'700'000'000'000'000;

void check_names(std::string_view prefix, std::string_view text) {
  const LockKey key{std::string(text)};
  if (key_fault(text)) return;
  const KeyNames names(std::string(prefix), key);
  const auto back = key_of(prefix, names.holds);
  promise(back == key, "a key is read back from the name of its holds", text);
  if (prefix.find('{') != std::string_view::npos) return;
  for (const std::string& each : {names.queue, names.waiters, names.fence, names.latch}) {
    promise(slot_of(each) == slot_of(names.holds), "all of a lock is in one slot", each);
  }
}

void check_record(std::string_view text) {
  const NamedTable read = parse_record(text, "the record");
  const std::string again = record_text(read.key, read.table);
  const NamedTable second = parse_record(again, "the record");
  promise(record_text(second.key, second.table) == again, "a record that was read can be written");
}

}  // namespace

void try_input(std::string_view input) {
  allow_errors([&] { parse_hold(input, now); });
  allow_errors([&] { parse_waiter(input, now - 1, now); });
  allow_errors([&] { parse_last_grant(input); });
  allow_errors([&] { latch_of_entry(input); });
  allow_errors([&] { key_of("dlock:", input); });
  allow_errors([&] { server_span(input); });
  allow_errors([&] { server_number(input); });
  allow_errors([&] {
    const Who who = parse_who(input);
    promise(parse_who(packed_who(who)) == who, "a process that was read can be written");
  });
  allow_errors([&] { check_record(input); });
  allow_errors([&] {
    Snapshot seen;
    seen.text = input;
    if (const auto latch = latch_in(seen, "the record")) {
      promise(!latch_text(*latch).empty(), "a latch that was read can be written");
    }
  });
  Pieces pieces(input);
  const auto prefix = pieces.until('\n');
  check_names(prefix, pieces.rest());
}

}  // namespace dlock::fuzz
