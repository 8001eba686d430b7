#include "local/waiter_tail.hpp"

#include <string_view>

#include "base/hash.hpp"

namespace dlock {
namespace {

/// The text of a table has all waiters where they are not more than this, ...
constexpr std::size_t most_in_text = 32;
/// ... and of a longer queue so many: then a good number of hand-overs passes before the rest is
/// read, and each of them has little to read.
constexpr std::size_t usual_in_text = 16;

}  // namespace

void WaiterTail::load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table) {
  if (!was_read_ && stored_.length > 0) {
    text_ = file.read_apart({stored_.offset, stored_.length}, stored_.hash);
  }
  was_read_ = true;
  const auto left = parse_waiters(std::string_view(text_).substr(parsed_), most, where, table);
  parsed_ = text_.size() - left.size();
}

std::string WaiterTail::write_beside(const LockKey& key, const LockTable& table, KeyFile& file) {
  if (!was_read_ && stored_.length > 0) return table_text(key, table, SIZE_MAX, stored_);
  const bool fits = table.queue.size() <= most_in_text;
  const std::size_t first = fits ? table.queue.size() : usual_in_text;
  const MoreWaiters more = write(waiter_lines(table, first) + text_.substr(parsed_), file);
  return table_text(key, table, first, more);
}

/// Lines that go on unchanged stay where they are: waiters leave at the front and join at the end.
MoreWaiters WaiterTail::write(const std::string& next, KeyFile& file) const {
  if (next.empty()) return {};
  Region there;
  const auto first_line = std::string_view(next).substr(0, next.find('\n') + 1);
  const auto at = text_.find(first_line);
  if (at != text_.npos && next.starts_with(std::string_view(text_).substr(at))) {
    there = {stored_.offset + at, text_.size() - at};
  }
  const Region region = file.write_apart(next, there);
  return {region.offset, region.length, block_hash(next)};
}

}  // namespace dlock
