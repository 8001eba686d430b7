#include "output/table.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/duration.hpp"
#include "output/sentences.hpp"

namespace dlock {
namespace {

/// A part of the output, escaped, that is never broken over two lines.
struct Cell {
  std::string text;
  Tone tone = Tone::plain;
  std::size_t width() const { return display_width(text); }
};

/// A holder or a waiter: the cells in columns, and the further facts.
struct Entry {
  std::vector<Cell> head;
  std::vector<Cell> facts;
};

constexpr std::size_t entry_indent = 2;
constexpr std::size_t narrow_indent = 4;

std::vector<std::size_t> widths_of(const std::vector<Entry>& entries) {
  std::vector<std::size_t> widths(entries.front().head.size());
  for (const Entry& entry : entries) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], entry.head[i].width());
    }
  }
  return widths;
}

/// The head, in columns of these widths if there are any and they fit, then the further facts.
/// Lines break between two cells at the right edge of the screen.
std::string entry_text(const Entry& entry, const std::vector<std::size_t>& widths,
                       const Screen& screen) {
  constexpr std::size_t room_for_comma = 1;
  std::size_t aligned = entry_indent;
  for (const std::size_t width : widths) aligned += width + 1;
  const bool in_columns = !widths.empty() && aligned <= screen.columns;
  const std::size_t depth = entry.head.front().text.find_first_not_of(' ');
  const std::size_t below = in_columns ? entry_indent + widths.front() + 1 : narrow_indent + depth;
  std::string text(entry_indent, ' ');
  std::size_t used = entry_indent;
  std::string glue;  // before the next cell; empty at the beginning of a line
  const auto break_line = [&] {
    text += (glue == ", " ? ",\n" : "\n") + std::string(below, ' ');
    used = below;
    glue.clear();
  };
  const auto add = [&](const Cell& cell) {
    const bool fits = used + glue.size() + cell.width() + room_for_comma <= screen.columns;
    if (!glue.empty() && !fits) break_line();
    const std::size_t taken = std::min(used + room_for_comma, screen.columns);
    const std::string fitted = screen.fitted(cell.text, screen.columns - taken);
    text += glue + screen.toned(fitted, cell.tone);
    used += glue.size() + display_width(fitted);
  };
  std::size_t column = entry_indent;
  for (std::size_t i = 0; i < entry.head.size(); ++i) {
    add(entry.head[i]);
    glue = " ";
    if (!in_columns || i + 1 == entry.head.size()) continue;
    column += widths[i] + 1;
    text.append(column - 1 - std::min(used, column - 1), ' ');
    used = std::max(used, column - 1);
  }
  glue = ", ";
  std::size_t all_facts = 0;
  for (const Cell& fact : entry.facts) all_facts += 2 + fact.width();
  if (in_columns && used + all_facts > screen.columns) break_line();
  for (const Cell& fact : entry.facts) {
    add(fact);
    glue = ", ";
  }
  return text + "\n";
}

std::string limit_text(Limit limit) {
  return limit.unlimited() ? "shared" : "limit " + std::to_string(limit.owners);
}

std::string left_text(const Holder& holder) {
  return holder.lease_left ? human_duration(*holder.lease_left) : "-";
}

/// `renewed 6s ago by run`, or `granted to acquire, not renewed`.
std::string renewal_text(const Holder& holder) {
  const std::string ago = human_duration(holder.renewed_ago) + " ago";
  const bool by_nobody = holder.who.via == Via::acquire && holder.renewed_ago >= holder.held;
  return by_nobody ? "granted to acquire, not renewed"
                   : "renewed " + ago + " by " + name_of(holder.who.via);
}

std::string place_text(const Who& who, const Screen& screen) {
  return screen.shown(who.user) + "@" + screen.shown(who.host);
}

/// The number of servers on which a holder has its hold; red if the hold cannot lose another one.
Cell servers_cell(const Holder& holder, const std::string& before, const std::string& behind) {
  const auto needed = votes_needed(static_cast<std::size_t>(holder.servers), holder.limit);
  const bool at_the_edge = static_cast<std::size_t>(holder.held_on) <= needed;
  return {
      before + std::to_string(holder.held_on) + " of " + std::to_string(holder.servers) + behind,
      at_the_edge ? Tone::bad : Tone::plain};
}

std::vector<Cell> head_of(Cell role, const Who& who, const std::string& age, const Screen& screen) {
  return {std::move(role),
          {place_text(who, screen)},
          {"pid " + std::to_string(who.pid)},
          {"(" + command_text(who, screen.shown(who.command)) + ")"},
          {"for " + age}};
}

/// The entry of a holder that uses another library: dlock knows only the holder's value.
Entry foreign_entry(const Holder& holder, const Screen& screen) {
  Entry entry{{{"held by", Tone::busy}, {"a client of " + holder.library}}, {}};
  auto& facts = entry.facts;
  if (!holder.who.host.empty()) facts.push_back({"on " + screen.shown(holder.who.host)});
  if (holder.acquired_at != WallTime{}) facts.push_back({"since " + iso8601(holder.acquired_at)});
  facts.push_back(holder.lease_left ? Cell{"lease " + left_text(holder) + " left"}
                                    : Cell{"no expiry", Tone::bad});
  if (holder.limit.unlimited()) facts.push_back({"shared"});
  return entry;
}

Entry entry_of(const Holder& holder, const Screen& screen) {
  if (!holder.library.empty()) return foreign_entry(holder, screen);
  const Cell role = holder.kept ? Cell{"cooldown after", Tone::faint} : Cell{"held by", Tone::busy};
  Entry entry{head_of(role, holder.who, human_duration(holder.held), screen), {}};
  auto& facts = entry.facts;
  if (holder.kept) facts.push_back({"by --min-hold"});
  if (!holder.who.label.empty()) facts.push_back({"[" + screen.shown(holder.who.label) + "]"});
  facts.push_back({"since " + iso8601(holder.acquired_at)});
  if (holder.kept) {
    facts.push_back({left_text(holder) + " left"});
  } else if (holder.lease_left) {
    facts.push_back({"lease " + left_text(holder) + " of " + human_duration(holder.ttl) + " left"});
    facts.push_back({renewal_text(holder)});
  }
  if (holder.orphan != 0) {
    facts.push_back({"dlock " + std::to_string(holder.who.pid) + " is dead; of its command pid " +
                         std::to_string(holder.orphan) + " (" + screen.shown(holder.orphan_name) +
                         ") still runs",
                     Tone::bad});
  }
  if (holder.stop_asked_by) facts.push_back({stop_asked_by_text(*holder.stop_asked_by)});
  facts.push_back({limit_text(holder.limit)});
  if (holder.holds > 1) facts.push_back({std::to_string(holder.holds) + " holds"});
  if (holder.servers > 0) facts.push_back(servers_cell(holder, "held on ", " servers"));
  facts.push_back({"fence " + std::to_string(holder.fence.value)});
  return entry;
}

Entry entry_of(const Waiter& waiter, const Screen& screen) {
  const Cell role{"  " + std::to_string(waiter.position) + ". waits", Tone::faint};
  Entry entry{head_of(role, waiter.who, human_duration(waiter.waiting), screen), {}};
  if (!waiter.who.label.empty())
    entry.facts.push_back({"[" + screen.shown(waiter.who.label) + "]"});
  entry.facts.push_back({"since " + iso8601(wall_now() - waiter.waiting)});
  entry.facts.push_back({limit_text(waiter.limit)});
  return entry;
}

std::string latch_line(const LatchState& latch, const Screen& screen) {
  const Cell state = latch.open() ? Cell{"open", Tone::good} : Cell{"shut", Tone::busy};
  return entry_text(
      {{{"latch"}, state}, {{arrivals_text(latch)}, {"ends in " + human_duration(latch.left)}}}, {},
      screen);
}

/// `released 2026-11-30T08:00:00.000Z after 1m01s, exit code 3`, red unless that is 0.
Cell end_cell(const LastGrant& last) {
  if (!last.end) return {"never released: its lease ran out, or its process was killed", Tone::bad};
  const auto& [at, exit_code, evicted_by] = *last.end;
  const auto held = std::chrono::floor<milliseconds>(at - last.acquired_at);
  std::string text = (evicted_by ? evicted_by_text(*evicted_by) + ", " : "released ") +
                     iso8601(at) + " after " + human_duration(std::max(held, milliseconds(0)));
  if (exit_code) text += ", exit code " + std::to_string(*exit_code);
  return {text, evicted_by || exit_code.value_or(0) != 0 ? Tone::bad : Tone::plain};
}

std::string last_line(const LastGrant& last, const Screen& screen) {
  Entry entry{{{"last held by", Tone::faint},
               {place_text(last.who, screen)},
               {"pid " + std::to_string(last.who.pid)},
               {"(" + screen.shown(last.who.command) + ")"}},
              {}};
  if (!last.who.label.empty()) entry.facts.push_back({"[" + screen.shown(last.who.label) + "]"});
  entry.facts.push_back({"granted " + iso8601(last.acquired_at)});
  entry.facts.push_back(end_cell(last));
  entry.facts.push_back({"fence " + std::to_string(last.fence.value)});
  return entry_text(entry, {}, screen);
}

using Row = std::vector<Cell>;

/// A column of a table.
struct Column {
  const char* heading;
  std::size_t least = 0;  ///< the column may be cut to this width; 0: never
  int goes = 0;           ///< the order in which columns are left out if there is no room; 0: never
  bool optional = false;  ///< left out if all its cells are `-`
  std::size_t width = 0;
  bool shown = true;
};

/// The rows in aligned columns, below a line of headings. If the terminal is too narrow, columns
/// are left out and the longest cells are cut.
std::string columns_text(std::vector<Column> columns, std::vector<Row> rows, const Screen& screen) {
  constexpr std::size_t gap = 2;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    Column& column = columns[i];
    column.shown = !column.optional || std::any_of(rows.begin(), rows.end(), [i](const Row& row) {
      return row[i].text != "-";
    });
    column.width = display_width(column.heading);
    for (const Row& row : rows) column.width = std::max(column.width, row[i].width());
    column.least = column.least == 0 ? column.width : std::min(column.width, column.least);
  }
  const auto too_wide = [&](std::size_t Column::*width) {
    std::size_t total = 0;
    for (const Column& each : columns) {
      if (each.shown) total += (total > 0 ? gap : 0) + each.*width;
    }
    return screen.is_terminal && total > screen.columns;
  };
  const int all_gone = static_cast<int>(columns.size());
  for (int turn = 1; turn <= all_gone && too_wide(&Column::least); ++turn) {
    for (Column& each : columns) each.shown = each.shown && each.goes != turn;
  }
  while (too_wide(&Column::width)) {
    Column* widest = nullptr;
    for (Column& each : columns) {
      const bool may_be_cut = each.shown && each.width > each.least;
      if (may_be_cut && (widest == nullptr || each.width > widest->width)) widest = &each;
    }
    if (widest == nullptr) break;
    --widest->width;
  }
  Row headings;
  for (const Column& each : columns) headings.push_back({each.heading, Tone::faint});
  rows.insert(rows.begin(), headings);
  std::string text;
  for (const Row& row : rows) {
    std::size_t used = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!columns[i].shown) continue;
      // The screen is too narrow even for the columns that are never left out.
      if (screen.is_terminal && at >= screen.columns) break;
      const std::size_t room = screen.columns - std::min(at, screen.columns);
      const std::string cell = screen.fitted(row[i].text, std::min(columns[i].width, room));
      text += std::string(at - used, ' ') + screen.toned(cell, row[i].tone);
      used = at + display_width(cell);
      at += columns[i].width + gap;
    }
    text += "\n";
    // The last column, if it was left out for lack of room, gets a line of its own.
    const bool below = &row != &rows.front() && !columns.back().shown && row.back().text != "-";
    if (below && columns.back().optional)
      text += "  " + screen.fitted(row.back().text, screen.columns - 2) + "\n";
  }
  return text;
}

Row row_of(const KeyState& state, const Screen& screen) {
  // The columns of overview_text, in its order.
  enum : std::size_t {
    key,
    holder,
    pid,
    command,
    held,
    lease,
    servers,
    waiting,
    latch,
    label,
    columns
  };
  Row row(columns, Cell{"-"});
  row[key] = {screen.shown(state.key.text), Tone::title};
  row[waiting] = {std::to_string(state.waiters.size()),
                  state.waiters.empty() ? Tone::plain : Tone::busy};
  if (state.latch) {
    row[latch] = {std::to_string(state.latch->arrived) + "/" + std::to_string(state.latch->count),
                  state.latch->open() ? Tone::good : Tone::busy};
  }
  if (state.holders.empty()) {
    if (!state.latch || !state.waiters.empty()) row[holder] = {"free", Tone::good};
    if (state.last) {
      row[holder].text += ", last " + place_text(state.last->who, screen);
      row[pid] = {std::to_string(state.last->who.pid)};
      row[command] = {screen.shown(state.last->who.command)};
    }
    return row;
  }
  const Holder& first = state.holders.front();
  const std::size_t more = state.holders.size() - 1;
  row[lease] = {left_text(first)};
  if (!first.library.empty()) {
    row[holder] = {screen.shown(first.library), Tone::busy};
    return row;
  }
  row[holder] = {(first.kept ? "cooldown after " : "") + place_text(first.who, screen) +
                     (more > 0 ? " +" + std::to_string(more) : ""),
                 first.kept ? Tone::faint : Tone::busy};
  row[pid] = {std::to_string(first.who.pid)};
  row[command] = {screen.shown(first.who.command)};
  row[held] = {human_duration(first.held)};
  if (first.servers > 0) row[servers] = servers_cell(first, "", "");
  if (!first.who.label.empty()) row[label] = {screen.shown(first.who.label)};
  return row;
}

}  // namespace

std::string key_text(const KeyState& state, const Screen& screen) {
  const std::string key = screen.fitted(screen.shown(state.key.text), screen.columns);
  if (!state.in_use()) {
    return state.last ? key + " is free\n" + last_line(*state.last, screen)
                      : key + " is free; nobody has locked it in the last seven days\n";
  }
  std::string text = screen.toned(key, Tone::title) + "\n";
  if (state.latch) text += latch_line(*state.latch, screen);
  if (!state.of_lock()) return text;
  if (state.holders.empty()) text += "  " + screen.toned("free", Tone::good) + "\n";
  if (state.last) text += last_line(*state.last, screen);
  std::vector<Entry> entries;
  for (const Holder& holder : state.holders) entries.push_back(entry_of(holder, screen));
  for (const Waiter& waiter : state.waiters) entries.push_back(entry_of(waiter, screen));
  const auto widths = widths_of(entries);
  for (const Entry& entry : entries) text += entry_text(entry, widths, screen);
  return text;
}

std::string overview_text(const std::vector<KeyState>& states, const Screen& screen) {
  if (states.empty()) return "";
  std::vector<Row> rows;
  for (const KeyState& state : states) rows.push_back(row_of(state, screen));
  return columns_text({{"KEY", 8},
                       {"HOLDER", 8},
                       {"PID", 0, 2},
                       {"COMMAND", 7, 4},
                       {"HELD", 0, 6},
                       {"LEASE", 0, 3},
                       {"SERVERS", 0, 5, true},
                       {"WAITING"},
                       {"LATCH", 9, 0, true},
                       {"LABEL", 12, 1, true}},
                      rows, screen);
}

std::string kinds_text(const std::vector<KindRow>& kinds, const Screen& screen) {
  if (kinds.empty()) return "";
  std::vector<Row> rows;
  for (const KindRow& kind : kinds) {
    const Holder& holder = kind.holder;
    const bool since_is_known = holder.acquired_at != WallTime{};
    Row row{{screen.shown(kind.key)},
            {screen.shown(kind.library())},
            {kind.kind},
            {holder.who.host.empty() ? "-" : screen.shown(holder.who.host)},
            {since_is_known ? iso8601(holder.acquired_at) : "-"},
            {holder.lease_left ? left_text(holder) : "no expiry"}};
    if (!holder.lease_left) {
      for (Cell& cell : row) cell.tone = Tone::bad;
    }
    rows.push_back(std::move(row));
  }
  return columns_text({{"KEY"}, {"LIBRARY"}, {"KIND"}, {"HOST"}, {"SINCE"}, {"LEASE"}}, rows,
                      screen);
}

}  // namespace dlock
