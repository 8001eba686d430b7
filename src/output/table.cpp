#include "output/table.hpp"

#include <algorithm>
#include <array>

#include "base/duration.hpp"
#include "base/escape.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

constexpr std::size_t columns = 7;
using Row = std::array<std::string, columns>;

/// Code points, which is close to columns for text that has been escaped.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string limit_text(Limit limit) {
  return limit.unlimited() ? "shared" : "limit " + std::to_string(limit.owners);
}

std::string left_text(const Holder& holder) {
  return holder.lease_left ? human_duration(*holder.lease_left) : "-";
}

std::string holder_line(const Holder& holder) {
  std::string line = holder.kept ? "  kept by --min-hold after " : "  held by ";
  line += who_text(holder.who) + " for " + human_duration(holder.held) + ", since " +
          iso8601(holder.acquired_at);
  if (holder.lease_left) line += ", lease " + left_text(holder) + " left";
  line += ", " + limit_text(holder.limit);
  if (holder.holds > 1) line += ", " + std::to_string(holder.holds) + " holds";
  if (holder.servers > 0) {
    line += ", held on " + std::to_string(holder.held_on) + " of " +
            std::to_string(holder.servers) + " servers";
  }
  return line + ", fence " + std::to_string(holder.fence.value) + "\n";
}

std::string waiter_line(const Waiter& waiter) {
  const auto since = wall_now() - waiter.waiting;
  return "  " + std::to_string(waiter.position) + ". " + who_text(waiter.who) + " waiting for " +
         human_duration(waiter.waiting) + ", since " + iso8601(since) + ", " +
         limit_text(waiter.limit) + "\n";
}

Row row_of(const KeyState& state) {
  const std::string key = escaped(state.key.text);
  const std::string waiting = std::to_string(state.waiters.size());
  if (state.holders.empty()) return {key, "free", "-", "-", "-", "-", waiting};
  const Holder& first = state.holders.front();
  const std::size_t more = state.holders.size() - 1;
  const std::string others = more > 0 ? " +" + std::to_string(more) : "";
  const std::string who = (first.kept ? "kept after " : "") + escaped(first.who.user) + "@" +
                          escaped(first.who.host) + others;
  return {key,
          who,
          std::to_string(first.who.pid),
          escaped(first.who.command),
          human_duration(first.held),
          left_text(first),
          waiting};
}

}  // namespace

std::string key_text(const KeyState& state) {
  if (state.holders.empty() && state.waiters.empty()) return "free\n";
  std::string text = escaped(state.key.text) + "\n";
  if (state.holders.empty()) text += "  free\n";
  for (const Holder& holder : state.holders) text += holder_line(holder);
  for (const Waiter& waiter : state.waiters) text += waiter_line(waiter);
  return text;
}

std::string overview_text(const std::vector<KeyState>& states) {
  if (states.empty()) return "";
  std::vector<Row> rows{{"KEY", "HOLDER", "PID", "COMMAND", "HELD", "LEASE", "WAITING"}};
  for (const KeyState& state : states) rows.push_back(row_of(state));
  std::array<std::size_t, columns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) {
      text += row[i];
      if (i + 1 < columns) text += std::string(widths[i] - width(row[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace dlock
