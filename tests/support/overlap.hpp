#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlock::test {

/// The oracle of mutual exclusion: children append "EVENT KEY PID NANOSECONDS" lines to a log
/// (BootClock, so one machine's lines compare exactly), EVENT being start, beat or end. From a
/// shell: `"$STAMP" log start key; work; "$STAMP" log end key`, with stamp_path() for STAMP.
struct QuorumHold {
  std::string key;
  long pid = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;  ///< where it was killed: the last that was seen of it
  bool ended = false;       ///< wrote its own end
};

/// Appends one line for this process.
void stamp(const std::string& log, std::string_view event, std::string_view key);

/// The helper program that does the same for a shell; without arguments it prints the time.
std::string stamp_path();

/// All tenures of a log file in the order they started. Error for a line that is none.
std::vector<QuorumHold> tenures(const std::string& log);

/// The pairs of one key that overlap: what must be empty.
std::vector<std::pair<QuorumHold, QuorumHold>> overlaps(const std::string& log);

/// How many tenures of `key` were under way at the same time at most.
std::size_t most_at_once(const std::string& log, std::string_view key);

}  // namespace dlock::test
