#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlock::test {

/// The oracle of mutual exclusion. Children append "EVENT KEY PID NANOSECONDS" lines to a log;
/// EVENT is start, beat or end. BootClock makes all lines of one machine comparable. From a shell:
/// `"$STAMP" log start key; work; "$STAMP" log end key`, with stamp_path() for STAMP.
struct QuorumHold {
  std::string key;
  long pid = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;  ///< if it was killed: its last sign of life
  bool ended = false;       ///< it wrote its own end
};

/// Appends one line for this process.
void stamp(const std::string& log, std::string_view event, std::string_view key);

/// The helper program that does the same for a shell; without arguments it prints the time.
std::string stamp_path();

/// All holds in a log file, ordered by start. Error for a malformed line.
std::vector<QuorumHold> tenures(const std::string& log);

/// The pairs of overlapping holds of one key; a correct run has none.
std::vector<std::pair<QuorumHold, QuorumHold>> overlaps(const std::string& log);

/// The largest number of concurrent holds of `key`.
std::size_t most_at_once(const std::string& log, std::string_view key);

}  // namespace dlock::test
