#include "cas/latch_record.hpp"

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::string_view first_word_of_latch = "dlock-latch";
constexpr std::string_view version_of_latch = "1";

[[noreturn]] void refuse_latch(const std::string& where) {
  throw Error(ErrorKind::wrong_data,
              where + ": a record holds no latch of this version of dlock; if it is not needed, " +
                  "remove it");
}

}  // namespace

std::string latch_text(const LatchRecord& latch) {
  return std::string(first_word_of_latch) + " " + std::string(version_of_latch) + " " +
         std::to_string(latch.count) + " " + std::to_string(latch.ends.count()) + " " +
         latch.generation + " " + (latch.open ? "open" : "closed") + "\n";
}

std::optional<LatchRecord> latch_in(const Snapshot& seen, const std::string& where) {
  if (seen.text.empty()) return std::nullopt;
  std::string_view text = seen.text;
  if (!text.ends_with('\n')) refuse_latch(where);
  text.remove_suffix(1);
  if (take_until(text, ' ') != first_word_of_latch || take_until(text, ' ') != version_of_latch) {
    refuse_latch(where);
  }
  LatchRecord latch;
  const auto count = parse_number(take_until(text, ' '), 1, largest_latch);
  const auto ends = parse_number(take_until(text, ' '), 0, latest_time.count());
  latch.generation = take_until(text, ' ');
  latch.open = text == "open";
  if (!count || !ends || latch.generation.empty() || (!latch.open && text != "closed")) {
    refuse_latch(where);
  }
  latch.count = *count;
  latch.ends = microseconds(*ends);
  if (latch.ends <= seen.clock) return std::nullopt;
  return latch;
}

}  // namespace dlock
