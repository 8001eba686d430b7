#include "rule/table_text.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::string_view first_line_of_file = "dlock-table 1";
constexpr std::string_view record_format = "dlock-record ";
constexpr std::string_view record_version = "1";
constexpr std::string_view last_line = "end";
constexpr std::string_view flags = "hpkt";  // in the order of Flag
constexpr std::string_view empty_field = "-";

/// The place of the text: a file near the processes it names, or a record apart from them.
enum class Form { file, record };

/// Writes the text of a table.
class Writer {
 public:
  Writer(std::string& text, Form form) : text_(text), form_(form) {}
  Writer& line(std::string_view kind) {
    text_ += kind;
    return *this;
  }
  Writer& add(std::string_view field) {
    text_ += ' ';
    if (field.empty()) {
      text_ += empty_field;
    } else if (field == empty_field) {
      text_ += "%2D";
    } else {
      append_percent_encoded(text_, field);
    }
    return *this;
  }
  template <typename Number>
  Writer& add_number(Number number) {
    char digits[24] = {' '};
    const auto end = std::to_chars(std::begin(digits) + 1, std::end(digits), number).ptr;
    text_.append(digits, end);
    return *this;
  }
  Writer& add_process(const ProcessId& id) {
    return add_number(id.pid).add_number(id.started).add_number(id.pid_space);
  }
  Writer& add_who(const Who& who) {
    return add(who.host).add_number(who.pid).add(who.user).add(who.command).add(who.label);
  }
  Writer& add_backing(const HolderIdentity& backing) {
    if (form_ == Form::record) return add_number(backing.command.pid).add(backing.mailbox);
    add_number(backing.by_process ? 1 : 0);
    return add_process(backing.process).add_process(backing.command).add(backing.mailbox);
  }
  void end() { text_ += '\n'; }

 private:
  std::string& text_;
  Form form_;
};

void write_hold(Writer& out, const HoldEntry& hold) {
  out.line("hold").add(hold.token.text).add(hold.owner.text);
  out.add(flags.substr(static_cast<std::size_t>(hold.flag), 1));
  for (const std::int64_t number :
       {hold.at.count(), hold.since.count(), hold.lease.count(), hold.ttl.count(),
        hold.floor.count(), hold.limit.owners, hold.fence.value}) {
    out.add_number(number);
  }
  out.add_who(hold.who).add_backing(hold.backing).end();
}

void write_last(Writer& out, const LastGrant& last) {
  out.line("last").add_number(last.fence.value);
  out.add_number(last.acquired_at.time_since_epoch().count()).add_who(last.who).end();
}

void write_latest(Writer& out, const LatestClaim& latest) {
  out.line("latest").add_number(latest.ticket.value).add(latest.token.text);
  out.add(latest.owner.text).add_who(latest.who).end();
}

void write_waiter(Writer& out, const WaiterEntry& waiter) {
  out.line("wait").add(waiter.token.text).add(waiter.owner.text);
  for (const std::int64_t number :
       {waiter.ticket.value, waiter.seen.count(), waiter.told.count(), waiter.ttl.count(),
        waiter.floor.count(), waiter.limit.owners}) {
    out.add_number(number);
  }
  out.add_who(waiter.who).add_backing(waiter.backing).end();
}

/// Reads the text of a table.
class Reader {
 public:
  Reader(std::string_view text, Form form, const std::string& where)
      : rest_(text), form_(form), where_(where) {}

  [[noreturn]] void fail() const {
    throw Error(ErrorKind::wrong_data,
                where_ + " holds no lock of this version of dlock; if it is not needed, remove it");
  }

  std::string_view line() {
    const auto end = rest_.find('\n');
    if (end == std::string_view::npos) fail();
    const auto line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  /// Starts on the fields of the next line and returns the first.
  std::string_view open_line() {
    fields_ = line();
    encoded_ = fields_.find('%') != std::string_view::npos;
    return raw_field();
  }
  void close_line() const {
    if (!fields_.empty()) fail();
  }
  void close() const {
    if (!at_end()) fail();
  }
  bool at_end() const { return rest_.empty(); }

  std::string text() {
    const auto field = raw_field();
    if (field == empty_field) return {};
    return encoded_ ? percent_decoded(field) : std::string(field);
  }
  template <typename T>
  T number() {
    T value{};
    const auto [end, error] =
        std::from_chars(fields_.data(), fields_.data() + fields_.size(), value);
    const auto digits = static_cast<std::size_t>(end - fields_.data());
    if (error != std::errc() || (digits != fields_.size() && *end != ' ')) fail();
    fields_.remove_prefix(std::min(digits + 1, fields_.size()));
    return value;
  }
  std::int64_t number_within(std::int64_t low, std::int64_t high) {
    const auto value = number<std::int64_t>();
    if (value < low || value > high) fail();
    return value;
  }
  microseconds time() {
    return microseconds(number_within(earliest_time.count(), latest_time.count()));
  }
  milliseconds span() { return milliseconds(number_within(0, longest_span.count())); }
  Ticket ticket() { return Ticket{time().count()}; }
  /// The limit leaves room for the next fence.
  Fence fence() { return Fence{number_within(0, INT64_MAX - 1)}; }
  ProcessId process() {
    ProcessId id;
    id.pid = number<pid_t>();
    id.started = number<std::uint64_t>();
    id.pid_space = number<std::uint64_t>();
    return id;
  }
  Who who() {
    Who who;
    who.host = text();
    who.pid = number<pid_t>();
    who.user = text();
    who.command = text();
    who.label = text();
    return who;
  }
  HolderIdentity backing() {
    HolderIdentity backing;
    if (form_ == Form::record) {
      backing.command.pid = number<pid_t>();
      backing.mailbox = text();
      return backing;
    }
    backing.by_process = number<int>() != 0;
    backing.process = process();
    backing.command = process();
    backing.mailbox = text();
    return backing;
  }

 private:
  std::string_view raw_field() {
    if (fields_.empty()) fail();
    const auto end = fields_.find(' ');
    const auto field = fields_.substr(0, end);
    fields_ = end == std::string_view::npos ? std::string_view() : fields_.substr(end + 1);
    return field;
  }

  std::string_view rest_;
  std::string_view fields_;
  bool encoded_ = false;  ///< a field of the line is percent-encoded
  Form form_;
  const std::string& where_;
};

void read_hold(Reader& in, HoldEntry& hold) {
  hold.token.text = in.text();
  hold.owner.text = in.text();
  const std::string flag = in.text();
  const auto place = flag.size() == 1 ? flags.find(flag) : std::string_view::npos;
  if (place == std::string_view::npos) in.fail();
  hold.flag = static_cast<Flag>(place);
  hold.at = in.time();
  hold.since = in.time();
  hold.lease = in.span();
  hold.ttl = in.span();
  hold.floor = in.span();
  hold.limit.owners = in.number<std::int64_t>();
  hold.fence = in.fence();
  hold.who = in.who();
  hold.backing = in.backing();
}

void read_last(Reader& in, LastGrant& last) {
  last.fence = in.fence();
  last.acquired_at = WallTime(in.time());
  last.who = in.who();
}

void read_latest(Reader& in, LatestClaim& latest) {
  latest.ticket = in.ticket();
  latest.token.text = in.text();
  latest.owner.text = in.text();
  latest.who = in.who();
}

void read_waiter(Reader& in, WaiterEntry& waiter) {
  waiter.token.text = in.text();
  waiter.owner.text = in.text();
  waiter.ticket = in.ticket();
  waiter.seen = in.time();
  waiter.told = in.time();
  waiter.ttl = in.span();
  waiter.floor = in.span();
  waiter.limit.owners = in.number<std::int64_t>();
  waiter.who = in.who();
  waiter.backing = in.backing();
}

std::string text_in(Form form, std::string_view first, const LockKey& key, const LockTable& table,
                    std::size_t waiters) {
  constexpr std::size_t usual_line = 256;
  waiters = std::min(waiters, table.queue.size());
  std::string text;
  text.reserve((table.holds.size() + waiters + 2) * usual_line);
  Writer out(text, form);
  out.line(first).end();
  out.line("key").add(key.text).end();
  out.line("fence").add_number(table.last_fence.value).end();
  out.line("asked").add_number(table.last_ask.count()).end();
  if (table.last) write_last(out, *table.last);
  if (table.latest) write_latest(out, *table.latest);
  for (const HoldEntry& hold : table.holds) write_hold(out, hold);
  for (std::size_t i = 0; i < waiters; ++i) write_waiter(out, table.queue[i]);
  out.line(last_line).end();
  return text;
}

/// Reads the text after the first line.
NamedTable read_table(Reader& in) {
  NamedTable named;
  if (in.open_line() != "key") in.fail();
  named.key.text = in.text();
  in.close_line();
  if (in.open_line() != "fence") in.fail();
  named.table.last_fence = in.fence();
  in.close_line();
  if (in.open_line() != "asked") in.fail();
  named.table.last_ask = in.time();
  in.close_line();
  while (true) {
    const auto kind = in.open_line();
    if (kind == last_line) break;
    if (kind == "hold") {
      read_hold(in, named.table.holds.emplace_back());
    } else if (kind == "last") {
      read_last(in, named.table.last.emplace());
    } else if (kind == "latest") {
      read_latest(in, named.table.latest.emplace());
    } else if (kind == "wait") {
      read_waiter(in, named.table.queue.emplace_back());
    } else {
      in.fail();
    }
    in.close_line();
  }
  in.close_line();
  in.close();
  return named;
}

}  // namespace

std::string table_text(const LockKey& key, const LockTable& table, std::size_t waiters) {
  return text_in(Form::file, first_line_of_file, key, table, waiters);
}

std::string waiter_lines(const LockTable& table, std::size_t first) {
  std::string lines;
  Writer out(lines, Form::file);
  for (std::size_t i = first; i < table.queue.size(); ++i) write_waiter(out, table.queue[i]);
  return lines;
}

NamedTable parse_table(std::string_view text, const std::string& where) {
  Reader in(text, Form::file, where);
  if (in.line() != first_line_of_file) in.fail();
  return read_table(in);
}

void parse_waiters(std::string_view lines, const std::string& where, LockTable& table) {
  Reader in(lines, Form::file, where);
  while (!in.at_end()) {
    if (in.open_line() != "wait") in.fail();
    read_waiter(in, table.queue.emplace_back());
    in.close_line();
  }
}

std::string record_text(const LockKey& key, const LockTable& table) {
  const std::string first = std::string(record_format) + std::string(record_version);
  return text_in(Form::record, first, key, table, SIZE_MAX);
}

NamedTable parse_record(std::string_view text, const std::string& where) {
  Reader in(text, Form::record, where);
  const auto first = in.line();
  if (!first.starts_with(record_format)) in.fail();
  if (first.substr(record_format.size()) != record_version) {
    throw Error(ErrorKind::wrong_data,
                where + " was written by another version of dlock: use that one here");
  }
  return read_table(in);
}

}  // namespace dlock
