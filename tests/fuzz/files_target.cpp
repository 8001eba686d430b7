// Reads the files of `local:` as a crash, another program or another user may have left them.

#include <string>

#include "base/text.hpp"
#include "fuzz/fuzz.hpp"
#include "local/file_names.hpp"
#include "local/key_file.hpp"
#include "rule/table_format.hpp"

namespace dlock::fuzz {
namespace {

constexpr std::uint64_t boot = 4711;

void check_slots(std::string_view file) {
  const ReadBytes read = [&](const Region& region) {
    return region.offset > file.size() ? std::string_view()
                                       : file.substr(region.offset, region.length);
  };
  const auto state = read_state(read, boot);
  if (!state || state->slot.sequence == 0) return;
  const Region& body = state->slot.body;
  promise(state->body.size() == body.length, "a body is as long as its slot says");
  const Slot next = next_slot(state->slot, "new body", std::nullopt, boot);
  const bool apart = next.body.offset >= body.end() || next.body.end() <= body.offset;
  promise(apart || body.length == 0, "the next state leaves the current one whole");
  promise(next.sequence > state->slot.sequence, "the next state counts");
}

void check_table(std::string_view text) {
  const NamedTable read = parse_table(text, "the file");
  const std::string again = table_text(read.key, read.table);
  const NamedTable second = parse_table(again, "the file");
  promise(table_text(second.key, second.table) == again, "a table that was read can be written");
  promise(second.key == read.key, "a table keeps its key");
}

void check_name(std::string_view name) {
  if (const auto key = key_of_file_name(name)) {
    promise(!key_fault(key->text), "a file's name tells a key that can be one", name);
  }
  if (key_fault(name)) return;
  const LockKey key{std::string(name)};
  for (const std::string& each : {key_file_name(key), latch_file_name(key), fence_file_name(key)}) {
    promise(
        each.size() <= 255 && each.find('/') == std::string::npos && each != "." && each != "..",
        "a key's file can be in a directory", each);
  }
  const auto back = key_of_file_name(key_file_name(key));
  promise(!back || *back == key, "a file's name tells its own key", name);
}

}  // namespace

void try_input(std::string_view input) {
  allow_errors([&] { check_slots(input); });
  allow_errors([&] { check_table(input); });
  allow_errors([&] {
    LockTable table;
    parse_waiters(input, "the file", table);
  });
  check_name(input);
}

}  // namespace dlock::fuzz
