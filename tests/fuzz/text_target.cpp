// Reads what users write, and checks how dlock shows it: durations, numbers, keys, escaping, JSON,
// metrics.

#include <nlohmann/json.hpp>
#include <string>

#include "base/duration.hpp"
#include "base/text.hpp"
#include "fuzz/fuzz.hpp"
#include "output/json.hpp"
#include "output/metrics.hpp"

namespace dlock::fuzz {
namespace {

void check_durations(std::string_view text) {
  const auto span = parse_duration(text);
  if (span) {
    promise(*span >= milliseconds(0) && *span <= longest_duration, "a duration has bounds");
    promise(!human_duration(*span).empty(), "a duration can be shown");
    const auto again = parse_duration(std::to_string(span->count()) + "ms");
    promise(again == span, "a duration is its milliseconds");
  }
  const auto number = parse_number(text, -5, 1000);
  if (number) promise(*number >= -5 && *number <= 1000, "a number is within its bounds");
}

void check_escaping(std::string_view text) {
  const std::string shown = escaped(text);
  check_shown(shown);
  for (const char byte : ascii_alone(shown)) {
    promise(static_cast<unsigned char>(byte) < 0x80, "what is shown in ASCII is ASCII");
  }
  promise(percent_decoded(percent_encoded(text)) == text, "what was encoded can be decoded");
  promise(percent_decoded(percent_encoded(text, "/.")) == text, "so with special bytes");
}

Who who_of(Pieces& pieces) {
  Who who;
  who.host = pieces.until('\n');
  who.user = pieces.until('\n');
  who.command = pieces.until('\n');
  who.label = pieces.until('\n');
  who.pid = pieces.byte();
  return who;
}

void check_metrics(const KeyState& state) {
  std::string text = inspect_metrics({state});
  std::erase(text, '\t');
  std::string_view rest = text;
  while (!rest.empty()) check_shown(take_until(rest, '\n'));
}

void check_json(std::string_view text) {
  Pieces pieces(text);
  KeyState state;
  state.key.text = pieces.until('\n');
  Holder holder;
  holder.owner = pieces.until('\n');
  holder.who = who_of(pieces);
  holder.lease_left = milliseconds(pieces.byte());
  Waiter waiter;
  waiter.who = who_of(pieces);
  state.holders.push_back(holder);
  state.waiters.push_back(waiter);
  RunStatus status;
  status.outcome = "lost";
  status.reason = pieces.rest();
  status.evicted_by = holder.who;
  status.locks = {{state.key, Fence{1}}};
  for (const std::string& line :
       {key_json(state), status_json(status), released_json(state.key, false, holder.who),
        evicted_json(state.key, state.holders),
        renewed_json(state.key, {{}, holder.who, holder.who})}) {
    promise(nlohmann::json::accept(line), "what is printed with --json is JSON", line);
    const auto end = line.find('\n');
    promise(end == std::string::npos || end + 1 == line.size(), "JSON is one line");
    check_shown(std::string_view(line).substr(0, end));
  }
  check_metrics(state);
}

}  // namespace

void try_input(std::string_view input) {
  check_durations(input);
  check_escaping(input);
  check_json(input);
}

}  // namespace dlock::fuzz
