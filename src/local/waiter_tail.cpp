#include "local/waiter_tail.hpp"

#include <algorithm>
#include <utility>

#include "base/hash.hpp"

namespace dlock {
namespace {

/// The text of a table has all waiters where they are not more than this, ...
constexpr std::size_t most_in_text = 32;
/// ... and of a longer queue so many: then a good number of hand-overs passes before the rest is
/// read, and each of them has little to read.
constexpr std::size_t usual_in_text = 16;

}  // namespace

WaiterMark mark_of(const WaiterEntry& waiter) {
  return {block_hash(waiter.token.text), waiter.ticket, waiter.seen, waiter.told};
}

void WaiterTail::load(std::size_t most, KeyFile& file, const std::string& where, LockTable& table) {
  if (!was_read_ && stored_.length > 0) {
    text_ = file.read_apart({stored_.offset, stored_.length}, stored_.hash);
  }
  was_read_ = true;
  auto left = std::string_view(text_).substr(parsed_);
  for (; most > 0 && !left.empty(); --most) {
    left = parse_waiters(left, 1, where, table);
    lines_.push_back(
        {std::exchange(parsed_, text_.size() - left.size()), mark_of(table.queue.back())});
  }
}

/// What the text says of the waiters from the `first` on, as far as that is still so; `first` goes
/// on to the one after them.
std::string_view WaiterTail::unchanged_lines(const LockTable& table, std::size_t& first) const {
  if (first == table.queue.size()) return {};
  const auto from = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.waiter.ticket == table.queue[first].ticket;
  });
  auto line = from;
  for (; line != lines_.end() && first < table.queue.size(); ++line, ++first) {
    if (line->waiter != mark_of(table.queue[first])) break;
  }
  if (line == from) return {};
  const std::size_t end = line == lines_.end() ? parsed_ : line->begin;
  return std::string_view(text_).substr(from->begin, end - from->begin);
}

std::string WaiterTail::write_beside(const LockKey& key, const LockTable& table, KeyFile& file) {
  if (!was_read_ && stored_.length > 0) return table_text(key, table, SIZE_MAX, stored_);
  const bool fits = table.queue.size() <= most_in_text;
  const std::size_t first = fits ? table.queue.size() : usual_in_text;
  std::size_t changed = first;
  std::string next(unchanged_lines(table, changed));
  next += waiter_lines(table, changed);
  next += std::string_view(text_).substr(parsed_);
  return table_text(key, table, first, write(next, file));
}

/// What goes on unchanged stays where it is: waiters leave at the front and join at the end.
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
